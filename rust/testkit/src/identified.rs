//! Arguments that identify their batch and sample, wherever the call runs.

use std::any::Any;

use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::payload::Payload;
use guerdon_wire::columns::ColumnsWriter;
use guerdon_wire::sent_constants::SentConstants;
use guerdon_wire::text::{RawText, TextKind};

const MARK: &str = "sample ";
/// Position of the text in a column of one row.
const TEXT_AT: usize = 8 + 16 + 2 + 8;

/// The arguments of a batch with this number: one text, padded to `bytes` bytes.
#[derive(Clone, Copy, Debug)]
pub struct NumberedPayload {
    pub batch: u64,
    pub bytes: usize,
}

impl Payload for NumberedPayload {
    fn encode(&self, _: FunctionId, _: bool, samples: &[u32], _: &mut SentConstants, out: &mut Vec<u8>) {
        let text = |sample: &u32| format!("{:<width$}", format!("{MARK}{} {sample}", self.batch), width = self.bytes);
        let texts: Vec<String> = samples.iter().map(text).collect();
        ColumnsWriter::new(out, samples.len(), 1)
            .text(0, |row| RawText { kind: TextKind::Ascii, bytes: texts[row].as_bytes() });
    }

    fn bytes(&self, _: FunctionId, _: u32) -> usize {
        self.bytes
    }

    fn mixes(&self, _: FunctionId) -> bool {
        true
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns the batch and the first sample of a call with such arguments.
#[must_use]
pub fn identity(frame: &Frame, call: usize) -> Option<(u64, usize)> {
    let mut bytes = Vec::new();
    let first = u32::try_from(frame.first(call)).ok()?;
    frame.payload()?.encode(frame.function_id(), false, &[first], &mut SentConstants::none(), &mut bytes);
    let text = std::str::from_utf8(bytes.get(TEXT_AT..)?).ok()?;
    let mut numbers = text.strip_prefix(MARK)?.split_whitespace();
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
