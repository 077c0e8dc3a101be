//! Messages to a worker: the calls of a frame, its part of the environment, the order to end.

use guerdon_core::call::CallKind;
use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_wire::sent_constants::SentConstants;

use super::{NONE, count};

const RUN: u8 = 1;
const CLOSE: u8 = 2;
const ENVIRONMENT: u8 = 3;

/// Returns the message that makes a worker end.
pub(crate) fn close() -> [u8; 24] {
    let mut header = [0; 24];
    header[19] = CLOSE;
    header
}

/// Writes the message with a function's part of the environment.
pub(crate) fn environment(function: FunctionId, variables: &[(Vec<u8>, Vec<u8>)], out: &mut Vec<u8>) {
    let length: usize = variables.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    out.extend_from_slice(&(length as u64).to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&number(function));
    out.extend_from_slice(&[0, ENVIRONMENT, 0, 0, 0, 0]);
    for (name, value) in variables {
        out.extend_from_slice(name);
        out.push(b'=');
        out.extend_from_slice(value);
        out.push(0);
    }
}

/// Writes the message with all calls of a frame; false if its values can't be written.
pub(crate) fn run(id: u64, frame: &Frame, sent: &mut SentConstants, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(&number(frame.function_id()));
    let kind = match frame.kind() {
        CallKind::Sample => 0,
        // a worker treats them alike: lists in, a value for each sample out
        CallKind::Group | CallKind::Gathered => 1,
        CallKind::Batch => 2,
        CallKind::Finish => 3,
    };
    out.extend_from_slice(&[kind, RUN]);
    out.extend_from_slice(&count(frame.len()));
    let body = out.len();
    match frame.names() {
        None => out.extend_from_slice(&NONE.to_le_bytes()),
        Some(names) => {
            let length = names.iter().map(|name| name.len() + 1).sum();
            out.extend_from_slice(&count(length));
            for name in names {
                out.extend_from_slice(name.as_bytes());
                out.push(0);
            }
        }
    }
    if frame.kind() != CallKind::Sample {
        for call in 0..frame.len() {
            out.extend_from_slice(&count(frame.size(call)));
        }
    }
    if frame.kind() == CallKind::Finish {
        for score in (0..frame.len()).flat_map(|call| frame.scores(call)) {
            out.extend_from_slice(&score.unwrap_or(f64::NAN).to_le_bytes());
        }
    }
    let is_written = frame.encode(0..frame.len(), sent, out);
    let length = (out.len() - body) as u64;
    out[start..start + 8].copy_from_slice(&length.to_le_bytes());
    if !is_written {
        out.truncate(start);
    }
    is_written
}

fn number(function: FunctionId) -> [u8; 2] {
    u16::try_from(function).unwrap_or(u16::MAX).to_le_bytes()
}
