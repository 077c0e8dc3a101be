//! Messages between a driver and an agent.
//!
//! - A message is a sequence of items ([`Items`]), each a [`ToAgent`] or a [`ToDriver`]; a frame's
//!   values follow its head. Texts that are too long are truncated.
//! - The greetings of both sides, of kind 1, have the same layout in all versions, so that each
//!   side can name the other's version.

use std::ops::Range;
use std::time::Duration;

use guerdon_core::call::CallKind;
use guerdon_core::frame::Frame;
use guerdon_core::frame_runner::FrameEvent;
use guerdon_core::in_flight::Phase;
use guerdon_core::outcome::{Cell, Traceback};
use guerdon_core::snapshots::AgentStats;
use guerdon_wire::byte_reader::ByteReader;
use guerdon_wire::items::{ItemError, Items, write};
use guerdon_wire::sent_constants::SentConstants;
use serde::{Deserialize, Serialize};

/// Raised with every change of the items: both sides must have the same.
pub(crate) const PROTOCOL: u16 = 5;

/// Kind of a refusal, in all versions.
const OLD_REFUSED: u8 = 2;
/// Most bytes kept of a text.
const LONGEST_TEXT: usize = 64 << 10;

/// Digest that identifies the functions of an engine.
pub type Digest = [u8; 32];

/// Messages of a driver, in the order of their kinds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToAgent {
    Close,
    Hello {
        #[serde(with = "postcard::fixint::le")]
        protocol: u16,
        digest: Digest,
        #[serde(with = "postcard::fixint::le")]
        clock_ns: u64,
    },
    Frame(FrameHead),
    TakeBack(u64),
    Sweep(u64, Vec<usize>),
    Ping(u64),
    /// Requests the running calls, with their locations if these can be found in time.
    Inspect(Duration),
}

/// A frame, whose values follow.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FrameHead {
    pub id: u64,
    pub function: usize,
    pub kind: CallKind,
    pub alone: bool,
    pub suspect: bool,
    pub calls: usize,
    /// Samples of a call.
    pub samples: usize,
    pub names: Option<Vec<String>>,
    /// The score of each sample, for `finish_group` calls.
    pub scores: Vec<Option<f64>>,
}

/// Messages of an agent, in the order of their kinds. Times are on the agent's clock.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToDriver {
    Frame(u64, FrameEvent),
    Ready {
        #[serde(with = "postcard::fixint::le")]
        protocol: u16,
        #[serde(with = "postcard::fixint::le")]
        slots: u32,
        /// Time of the driver's greeting, by the driver's clock.
        #[serde(with = "postcard::fixint::le")]
        heard_ns: u64,
        #[serde(with = "postcard::fixint::le")]
        clock_ns: u64,
    },
    Refused(String),
    Pong {
        heard_ns: u64,
        clock_ns: u64,
        stats: AgentStats,
    },
    /// Lines that workers printed.
    Lines(Vec<u8>),
    Running(Vec<RunningCall>),
    /// A warning of the agent's lanes.
    Warning(String),
}

/// A call that the agent runs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RunningCall {
    pub frame: u64,
    pub call: usize,
    pub phase: Phase,
    pub age_ns: u64,
    /// The worker, thread or loop that runs it.
    pub place: String,
    /// Its location, or the reason why it was not found.
    pub stack: Result<String, String>,
}

impl ToAgent {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        write(self, out, |_| true);
    }

    /// Writes a frame with all its calls; false if its values can't be written.
    pub(crate) fn write_frame(id: u64, frame: &Frame, out: &mut Vec<u8>) -> bool {
        let is_finish = frame.kind() == CallKind::Finish;
        let scored = if is_finish { 0..frame.len() } else { 0..0 };
        let head = FrameHead {
            id,
            function: frame.function_id(),
            kind: frame.kind(),
            alone: frame.alone(),
            suspect: frame.is_suspect(),
            calls: frame.len(),
            samples: if frame.is_empty() { 0 } else { frame.size(0) },
            names: frame.names().map(<[String]>::to_vec),
            scores: scored.flat_map(|call| frame.scores(call)).collect(),
        };
        let values = |out: &mut Vec<u8>| frame.encode(0..frame.len(), &mut SentConstants::none(), out);
        write(&Self::Frame(head), out, values)
    }

    /// Returns the next item of a message, and the position of a frame's values in it.
    pub(crate) fn next(items: &mut Items<'_>) -> Option<Result<(Self, Range<usize>), ItemError>> {
        items.read()
    }
}

impl ToDriver {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        write(self, out, |_| true);
    }

    /// The next item of a message.
    pub(crate) fn next(items: &mut Items<'_>) -> Option<Result<Self, ItemError>> {
        let next = match items.read_if(old_refusal) {
            Some(reason) => Ok(Self::Refused(reason)),
            None => items.read()?.map(|(message, _)| message),
        };
        Some(next.map(|mut message: Self| {
            message.shorten();
            message
        }))
    }

    /// Truncates its texts, which may be of any length, because results keep them.
    fn shorten(&mut self) {
        match self {
            Self::Refused(text) | Self::Warning(text) => cut(text),
            Self::Running(calls) => {
                for RunningCall { place, stack: Ok(stack) | Err(stack), .. } in calls {
                    cut(place);
                    cut(stack);
                }
            }
            Self::Frame(_, FrameEvent::Cells(cells)) => cells.iter_mut().for_each(|one| cut_reason(&mut one.cell)),
            Self::Frame(_, FrameEvent::Call { cells, .. }) => cells.iter_mut().for_each(cut_reason),
            Self::Frame(_, FrameEvent::Failed { failure, .. }) => {
                cut(&mut failure.reason);
                cut_traceback(failure.traceback.as_mut());
            }
            Self::Frame(_, FrameEvent::Broken(note)) => {
                cut(&mut note.reason);
                cut_traceback(note.traceback.as_mut());
            }
            _ => {}
        }
    }
}

/// Reads a refusal of an agent of version 4 or before: a text after a `u32` with its length. It
/// names both versions, and postcard would read another text in it.
fn old_refusal(mut item: ByteReader<'_>) -> Option<String> {
    let (kind, length) = (item.u8()?, item.u32()? as usize);
    let text = (kind == OLD_REFUSED && length == item.0.len()).then_some(item.0)?;
    Some(String::from_utf8_lossy(text).into_owned())
}

fn cut(text: &mut String) {
    if text.len() > LONGEST_TEXT {
        text.truncate(text.floor_char_boundary(LONGEST_TEXT));
        text.shrink_to_fit();
    }
}

fn cut_traceback(traceback: Option<&mut Traceback>) {
    if let Some(Traceback::Raised(text) | Traceback::LastSeen(text)) = traceback {
        cut(text);
    }
}

fn cut_reason(cell: &mut Cell) {
    match cell {
        Cell::Invalid(why) => cut(why),
        Cell::Reported(of) => cut(&mut of.1),
        Cell::Value(_) | Cell::Abstained => {}
    }
}

#[cfg(test)]
mod tests {
    use guerdon_core::outcome::Note;

    use super::*;

    #[test]
    fn refusals_of_older_agents_name_their_version() {
        let why = "its agent speaks version 4 of the agents' protocol, and this process version 5; install the same \
                   version of guerdon on all nodes";
        let mut message = Vec::new();
        message.extend((why.len() as u32 + 4).to_le_bytes());
        message.push(OLD_REFUSED);
        message.extend((why.len() as u32).to_le_bytes());
        message.extend(why.as_bytes());
        ToDriver::Refused("of today".to_owned()).write(&mut message);
        let mut items = Items::of(&message);
        for expected in [why, "of today"] {
            let refused = ToDriver::next(&mut items);
            assert!(matches!(&refused, Some(Ok(ToDriver::Refused(found))) if found == expected), "{refused:?}");
        }
        assert!(ToDriver::next(&mut items).is_none());
    }

    #[test]
    fn long_texts_of_an_agent_are_shortened() {
        let text = format!("{}ä", "x".repeat(LONGEST_TEXT - 1));
        let note = Note { reason: text.clone(), traceback: Some(Traceback::Raised(text.clone())) };
        let mut message = Vec::new();
        ToDriver::Frame(7, FrameEvent::Broken(note)).write(&mut message);
        ToDriver::Warning(text).write(&mut message);
        let mut items = Items::of(&message);
        let kept = |text: &str| text.len() == LONGEST_TEXT - 1;
        let Some(Ok(ToDriver::Frame(7, FrameEvent::Broken(note)))) = ToDriver::next(&mut items) else { panic!() };
        assert!(kept(&note.reason) && kept(note.traceback.unwrap().text()));
        let Some(Ok(ToDriver::Warning(text))) = ToDriver::next(&mut items) else { panic!() };
        assert!(kept(&text) && ToDriver::next(&mut items).is_none());
    }
}
