//! The values of a frame's calls, written for other processes.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use guerdon_wire::columns::ColumnsWriter;
use guerdon_wire::sent_constants::SentConstants;

use super::Frame;
use crate::batch_slice::BatchSlice;
use crate::call::CallKind;

impl Frame {
    /// Why a frame fails whose values could not be written.
    pub const UNWRITTEN: &str = "its arguments could not be written for a worker, please report this";

    /// Writes the values of these calls. False, with nothing written, if that panicked: the frame
    /// fails, and the thread goes on with others.
    #[must_use]
    pub fn encode(&self, calls: Range<usize>, sent: &mut SentConstants, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let is_written = catch_unwind(AssertUnwindSafe(|| self.write(calls, sent, out))).is_ok();
        if !is_written {
            out.truncate(start);
            sent.forget();
        }
        is_written
    }

    fn write(&self, calls: Range<usize>, sent: &mut SentConstants, out: &mut Vec<u8>) {
        let (function, finish) = (self.function_id(), self.kind() == CallKind::Finish);
        let mut samples: Vec<Vec<u32>> = vec![Vec::new(); self.slices().len()];
        for (share, sample) in calls.flat_map(|call| self.samples_by_slice(call)) {
            samples[share].push(sample as u32);
        }
        let shares = || self.slices().iter().zip(&samples).filter(|(_, samples)| !samples.is_empty());
        let mut encode = |(share, samples): (&BatchSlice, &Vec<u32>), out: &mut Vec<u8>| {
            if let Some(payload) = share.payload() {
                payload.encode(function, finish, samples, sent, out);
            }
        };
        if shares().nth(1).is_some() {
            let rows = samples.iter().map(Vec::len).sum();
            ColumnsWriter::new(out, rows, self.names().map_or(0, <[String]>::len)).pieces(shares(), encode);
        } else if let Some(all) = shares().next() {
            encode(all, out);
        }
    }

    /// Calls `each` with the modules that unpickling the values imports.
    pub fn modules(&self, each: &mut dyn FnMut(&str)) {
        let (function, finish) = (self.function_id(), self.kind() == CallKind::Finish);
        for payload in self.slices().iter().filter_map(BatchSlice::payload) {
            payload.modules(function, finish, each);
        }
    }
}
