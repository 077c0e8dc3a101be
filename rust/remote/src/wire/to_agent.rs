//! Messages of a driver.

// Bodies, by kind:
//
// 1 HELLO      u16 protocol   32 bytes digest   u64 the driver's clock
// 2 FRAME      u64 frame   u16 function   u8 kind of the calls   u8 flags (1 alone, 2 suspect)
//              u32 calls   u32 samples of a call
//              u32 length of the names (0xFFFFFFFF: by position)
//              names, each ended by a NUL   of finish calls: f64 score of each sample (NaN: none)
//              the values (the core's `columns`), to the end
// 3 TAKE_BACK  u64 frame
// 4 SWEEP      u64 frame   u32 calls   calls x u32
// 5 PING       u64 the driver's clock
// 6 CLOSE
// 7 INSPECT    u64 milliseconds that finding stacks may take

use std::ops::Range;
use std::time::Duration;

use guerdon_core::call::CallKind;
use guerdon_core::columns;
use guerdon_core::frame::Frame;
use guerdon_core::sent_constants::SentConstants;

use super::reader::{Items, ReadItem, Reader};
use super::{Digest, WireError, count, item};

const NO_NAMES: u32 = u32::MAX;

/// Messages of a driver.
#[derive(Debug, PartialEq)]
pub(crate) enum ToAgent {
    Hello { protocol: u16, digest: Digest, clock_ns: u64 },
    Frame(FrameHead),
    TakeBack(u64),
    Sweep(u64, Vec<usize>),
    Ping(u64),
    Close,
    Inspect(Duration),
}

/// A frame, whose values are in the message.
#[derive(Debug, PartialEq)]
pub(crate) struct FrameHead {
    pub id: u64,
    pub function: usize,
    pub kind: CallKind,
    pub alone: bool,
    pub suspect: bool,
    pub calls: usize,
    pub samples: usize,
    pub names: Option<Vec<String>>,
    pub scores: Vec<Option<f64>>,
    /// Place in the message.
    pub values: Range<usize>,
}

pub(crate) fn hello(digest: &Digest, clock_ns: u64, out: &mut Vec<u8>) {
    item(out, 1, |out| {
        out.extend_from_slice(&super::PROTOCOL.to_le_bytes());
        out.extend_from_slice(digest);
        out.extend_from_slice(&clock_ns.to_le_bytes());
    });
}

/// Writes a frame with all its calls; whether that was possible.
pub(crate) fn frame(id: u64, frame: &Frame, out: &mut Vec<u8>) -> bool {
    let (start, mut is_written) = (out.len(), false);
    item(out, 2, |out| {
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&u16::try_from(frame.function_id()).unwrap_or(u16::MAX).to_le_bytes());
        out.push(match frame.kind() {
            CallKind::Sample => 0,
            CallKind::Gathered => 1,
            CallKind::Group => 2,
            CallKind::Batch => 3,
            CallKind::Finish => 4,
        });
        out.push(u8::from(frame.alone()) | u8::from(frame.is_suspect()) << 1);
        out.extend_from_slice(&count(frame.len()));
        out.extend_from_slice(&count(if frame.is_empty() { 0 } else { frame.size(0) }));
        match frame.names() {
            None => out.extend_from_slice(&NO_NAMES.to_le_bytes()),
            Some(names) => {
                out.extend_from_slice(&count(names.iter().map(|name| name.len() + 1).sum()));
                for name in names {
                    out.extend_from_slice(name.as_bytes());
                    out.push(0);
                }
            }
        }
        if frame.kind() == CallKind::Finish {
            for score in (0..frame.len()).flat_map(|call| frame.scores(call)) {
                out.extend_from_slice(&score.unwrap_or(f64::NAN).to_le_bytes());
            }
        }
        is_written = columns::encode(frame, 0..frame.len(), &mut SentConstants::none(), out);
    });
    if !is_written {
        out.truncate(start);
    }
    is_written
}

pub(crate) fn take_back(id: u64, out: &mut Vec<u8>) {
    item(out, 3, |out| out.extend_from_slice(&id.to_le_bytes()));
}

pub(crate) fn sweep(id: u64, calls: &[usize], out: &mut Vec<u8>) {
    item(out, 4, |out| {
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&count(calls.len()));
        calls.iter().for_each(|call| out.extend_from_slice(&count(*call)));
    });
}

pub(crate) fn ping(clock_ns: u64, out: &mut Vec<u8>) {
    item(out, 5, |out| out.extend_from_slice(&clock_ns.to_le_bytes()));
}

pub(crate) fn close(out: &mut Vec<u8>) {
    item(out, 6, |_| {});
}

/// Asks for its calls, and their locations.
pub(crate) fn inspect(within: Duration, out: &mut Vec<u8>) {
    let millis = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
    item(out, 7, |out| out.extend_from_slice(&millis.to_le_bytes()));
}

impl ToAgent {
    /// The next item of a message.
    pub(crate) fn next(items: &mut Items<'_>, message: &[u8]) -> Option<Result<Self, WireError>> {
        Some(items.next_item()?.and_then(|(kind, body)| Self::read(kind, body, message)))
    }

    fn read(kind: u8, mut body: Reader<'_>, message: &[u8]) -> Result<Self, WireError> {
        let read = match kind {
            1 => body.u16().zip(body.array()).zip(body.u64()).map(|((protocol, digest), clock_ns)| Self::Hello {
                protocol,
                digest,
                clock_ns,
            }),
            2 => head(body, message).map(Self::Frame),
            3 => body.u64().map(Self::TakeBack),
            4 => body.u64().zip(body.numbers()).map(|(id, calls)| Self::Sweep(id, calls)),
            5 => body.u64().map(Self::Ping),
            6 => Some(Self::Close),
            7 => body.u64().map(|millis| Self::Inspect(Duration::from_millis(millis))),
            _ => return Err(WireError::UnknownKind(kind)),
        };
        read.ok_or(WireError::Malformed(kind))
    }
}

fn head(mut body: Reader<'_>, message: &[u8]) -> Option<FrameHead> {
    let (id, function, kind, flags) = (body.u64()?, body.u16()?, body.u8()?, body.u8()?);
    let (calls, samples) = (body.index()?, body.index()?);
    let kind = match kind {
        0 => CallKind::Sample,
        1 => CallKind::Gathered,
        2 => CallKind::Group,
        3 => CallKind::Batch,
        4 => CallKind::Finish,
        _ => return None,
    };
    let names = match body.u32()? {
        NO_NAMES => None,
        length => {
            let names = body.bytes(length as usize)?.split(|byte| *byte == 0);
            let mut names: Vec<String> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
            names.pop();
            Some(names)
        }
    };
    let mut scores = Vec::new();
    if kind == CallKind::Finish {
        let all = calls.checked_mul(samples)?;
        let mut bytes = Reader(body.bytes(all.checked_mul(8)?)?);
        while let Some(score) = bytes.f64() {
            scores.push((!score.is_nan()).then_some(score));
        }
    }
    // The body is a part of the message: the values are its end.
    let end = body.0.as_ptr() as usize + body.0.len() - message.as_ptr() as usize;
    let values = end.checked_sub(body.0.len())?..end;
    let function = usize::from(function);
    let (alone, suspect) = (flags & 1 != 0, flags & 2 != 0);
    Some(FrameHead { id, function, kind, alone, suspect, calls, samples, names, scores, values })
}
