//! Messages of an agent. Times are on the agent's clock.

// Bodies, by kind; `text` is a u32 length and UTF-8, `times` u64 start and u64 run time:
//
// 1 READY       u16 protocol   u32 slots   u64 the driver's clock as it was heard   u64 the agent's
// 2 REFUSED     text
// 3 BEGUN       u64 frame
// 4 CELLS       u64 frame   u32 n   n x (u32 call, u8 status, f64 value, times)
// 5 CALL        u64 frame   u32 call   times   u32 n   n x (u8 status, f64 value)
//               u32 bad ones   each (u32 index, text)   u8 recorded   bytes of the record
// 6 FAILED      u64 frame   u32 call   times   u8 kind   u8 flags   f64 retry after   u16 answer
//               text reason   text traceback   bytes of the record
// 7 BROKEN      u64 frame   u8 traceback   text reason   text traceback
// 8 USED        u64 frame   f64
// 9 OBSERVED    u64 frame   u64 nanoseconds
// 10 GIVEN_BACK u64 frame   u32 n   n x u32
// 11 ENDED      u64 frame
// 12 PONG       u64 the driver's clock as it was heard   u64 the agent's   5 x u64 counts
// 13 LINES      text that workers printed
// 14 IN_HAND    u32 n   n x (u64 frame, u32 call, u8 phase, u64 age, text place, u8 has a stack,
//               text stack or why there is none)
// 15 WARNING    text of what the agent's lanes warn of

use std::time::Duration;

use guerdon_core::frame_runner::{EndedCell, FrameEvent};
use guerdon_core::in_flight::Phase;
use guerdon_core::outcome::{Answer, Cell, Failure, FailureKind, Note, Status, Times, Traceback};

use super::reader::{Items, ReadItem, Reader};
use super::{AgentStats, PROTOCOL, WireError, bytes, count, item, text};

const VALUE: u8 = 0;
const ABSTAINED: u8 = 1;
const INVALID: u8 = 2;
/// Set for reports of the function.
const REPORTED: u8 = 16;

const RETRYABLE: u8 = 1;
const RETRY_AFTER: u8 = 2;
const ANSWER: u8 = 4;
const RECORD: u8 = 8;

const NO_TRACEBACK: u8 = 0;
const RAISED: u8 = 1;
const LAST_SEEN: u8 = 2;

/// Messages of an agent.
#[derive(Debug, PartialEq)]
pub(crate) enum ToDriver {
    Ready { protocol: u16, slots: usize, heard_ns: u64, clock_ns: u64 },
    Refused(String),
    Frame(u64, FrameEvent),
    Pong { heard_ns: u64, clock_ns: u64, stats: AgentStats },
    Lines(Vec<u8>),
    InHand(Vec<InHandCall>),
    Warning(String),
}

/// A call that the agent has in hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InHandCall {
    pub frame: u64,
    pub call: usize,
    pub phase: Phase,
    pub age_ns: u64,
    /// The worker, thread or loop that has it.
    pub place: String,
    /// Its location, or the reason why that is unknown.
    pub stack: Result<String, String>,
}

pub(crate) fn ready(slots: usize, heard_ns: u64, clock_ns: u64, out: &mut Vec<u8>) {
    item(out, 1, |out| {
        out.extend_from_slice(&PROTOCOL.to_le_bytes());
        out.extend_from_slice(&count(slots));
        out.extend_from_slice(&heard_ns.to_le_bytes());
        out.extend_from_slice(&clock_ns.to_le_bytes());
    });
}

pub(crate) fn refused(why: &str, out: &mut Vec<u8>) {
    item(out, 2, |out| text(why, out));
}

pub(crate) fn pong(heard_ns: u64, clock_ns: u64, stats: AgentStats, out: &mut Vec<u8>) {
    item(out, 12, |out| {
        let AgentStats { workers, forks, restarts, kills, abandoned_threads } = stats;
        for number in [heard_ns, clock_ns, workers, forks, restarts, kills, abandoned_threads] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    });
}

pub(crate) fn warning(what: &str, out: &mut Vec<u8>) {
    item(out, 15, |out| text(what, out));
}

pub(crate) fn lines(lines: &[u8], out: &mut Vec<u8>) {
    item(out, 13, |out| bytes(lines, out));
}

pub(crate) fn in_hand(calls: &[InHandCall], out: &mut Vec<u8>) {
    item(out, 14, |out| {
        out.extend_from_slice(&count(calls.len()));
        for InHandCall { frame, call, phase, age_ns, place, stack } in calls {
            out.extend_from_slice(&frame.to_le_bytes());
            out.extend_from_slice(&count(*call));
            out.push(*phase as u8);
            out.extend_from_slice(&age_ns.to_le_bytes());
            text(place, out);
            out.push(stack.is_ok().into());
            let (Ok(shown) | Err(shown)) = stack;
            text(shown, out);
        }
    });
}

/// Writes what became of a frame.
pub(crate) fn event(id: u64, event: &FrameEvent, out: &mut Vec<u8>) {
    let kind = match event {
        FrameEvent::Begun => 3,
        FrameEvent::Cells(cells) => {
            of_samples(id, cells, out);
            return;
        }
        FrameEvent::Call { .. } => 5,
        FrameEvent::Failed { .. } => 6,
        FrameEvent::Broken(_) => 7,
        FrameEvent::Used(_) => 8,
        FrameEvent::Observed(_) => 9,
        FrameEvent::GivenBack(_) => 10,
        FrameEvent::Ended => 11,
    };
    item(out, kind, |out| {
        out.extend_from_slice(&id.to_le_bytes());
        match event {
            FrameEvent::Begun | FrameEvent::Ended | FrameEvent::Cells(_) => {}
            FrameEvent::Call { call, cells, record, times } => of_call(*call, cells, record.as_deref(), *times, out),
            FrameEvent::Failed { call, failure, record, times } => {
                failed(*call, failure, record.as_deref(), *times, out);
            }
            FrameEvent::Broken(Note { reason, traceback }) => {
                out.push(traceback_kind(traceback.as_ref()));
                text(reason, out);
                text(traceback.as_ref().map_or("", Traceback::text), out);
            }
            FrameEvent::Used(tokens) => out.extend_from_slice(&tokens.to_le_bytes()),
            FrameEvent::Observed(run_ns) => out.extend_from_slice(&run_ns.to_le_bytes()),
            FrameEvent::GivenBack(calls) => {
                out.extend_from_slice(&count(calls.len()));
                calls.iter().for_each(|call| out.extend_from_slice(&count(*call)));
            }
        }
    });
}

/// Cells of one sample each; those that are not rewards by themselves, for they have a text.
fn of_samples(id: u64, cells: &[EndedCell], out: &mut Vec<u8>) {
    let plain = cells.iter().filter(|one| matches!(one.cell, Cell::Value(_) | Cell::Abstained));
    let number = plain.clone().count();
    if number > 0 {
        item(out, 4, |out| {
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(&count(number));
            for EndedCell { call, cell, times: of } in plain {
                out.extend_from_slice(&count(*call));
                status(cell, out);
                times(*of, out);
            }
        });
    }
    for EndedCell { call, cell, times } in
        cells.iter().filter(|one| !matches!(one.cell, Cell::Value(_) | Cell::Abstained))
    {
        item(out, 5, |out| {
            out.extend_from_slice(&id.to_le_bytes());
            of_call(*call, std::slice::from_ref(cell), None, *times, out);
        });
    }
}

fn status(cell: &Cell, out: &mut Vec<u8>) {
    let (status, value) = match cell {
        Cell::Value(value) => (VALUE, *value),
        Cell::Abstained => (ABSTAINED, f64::NAN),
        Cell::Invalid(_) => (INVALID, f64::NAN),
        Cell::Reported(of) => (REPORTED + of.0 as u8, f64::NAN),
    };
    out.push(status);
    out.extend_from_slice(&value.to_le_bytes());
}

fn times(times: Times, out: &mut Vec<u8>) {
    out.extend_from_slice(&times.started_ns.to_le_bytes());
    out.extend_from_slice(&times.run_ns.to_le_bytes());
}

fn of_call(call: usize, cells: &[Cell], record: Option<&[u8]>, of: Times, out: &mut Vec<u8>) {
    out.extend_from_slice(&count(call));
    times(of, out);
    out.extend_from_slice(&count(cells.len()));
    cells.iter().for_each(|cell| status(cell, out));
    let bad = || {
        cells.iter().enumerate().filter_map(|(index, cell)| match cell {
            Cell::Invalid(why) => Some((index, why)),
            Cell::Reported(of) => Some((index, &of.1)),
            Cell::Value(_) | Cell::Abstained => None,
        })
    };
    out.extend_from_slice(&count(bad().count()));
    for (index, why) in bad() {
        out.extend_from_slice(&count(index));
        text(why, out);
    }
    out.push(record.is_some().into());
    bytes(record.unwrap_or_default(), out);
}

fn failed(call: usize, failure: &Failure, record: Option<&[u8]>, of: Times, out: &mut Vec<u8>) {
    let Failure { kind, reason, traceback, retryable, retry_after, answer } = failure;
    out.extend_from_slice(&count(call));
    times(of, out);
    out.push(match kind {
        FailureKind::Timeout => 0,
        FailureKind::Error => 1,
        FailureKind::Crashed => 2,
    });
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    out.push(
        flag(*retryable, RETRYABLE)
            | flag(retry_after.is_some(), RETRY_AFTER)
            | flag(answer.is_some(), ANSWER)
            | flag(record.is_some(), RECORD),
    );
    out.push(traceback_kind(traceback.as_ref()));
    out.extend_from_slice(&retry_after.map_or(0.0, |wait| wait.as_secs_f64()).to_le_bytes());
    let answer = match answer {
        Some(Answer::Status(status)) => *status,
        Some(Answer::Broken) => 1,
        Some(Answer::Unreachable) | None => 0,
    };
    out.extend_from_slice(&answer.to_le_bytes());
    text(reason, out);
    text(traceback.as_ref().map_or("", Traceback::text), out);
    bytes(record.unwrap_or_default(), out);
}

const fn traceback_kind(traceback: Option<&Traceback>) -> u8 {
    match traceback {
        None => NO_TRACEBACK,
        Some(Traceback::Raised(_)) => RAISED,
        Some(Traceback::LastSeen(_)) => LAST_SEEN,
    }
}

impl ToDriver {
    /// The next item of a message.
    pub(crate) fn next(items: &mut Items<'_>) -> Option<Result<Self, WireError>> {
        Some(items.next_item()?.and_then(|(kind, mut body)| match kind {
            1..=15 => Self::read(kind, &mut body).ok_or(WireError::Malformed(kind)),
            _ => Err(WireError::UnknownKind(kind)),
        }))
    }

    fn read(kind: u8, body: &mut Reader<'_>) -> Option<Self> {
        match kind {
            1 => {
                let (protocol, slots) = (body.u16()?, body.index()?);
                let (heard_ns, clock_ns) = (body.u64()?, body.u64()?);
                return Some(Self::Ready { protocol, slots, heard_ns, clock_ns });
            }
            2 => return Some(Self::Refused(body.text()?)),
            12 => {
                let (heard_ns, clock_ns) = (body.u64()?, body.u64()?);
                let (workers, forks, restarts, kills) = (body.u64()?, body.u64()?, body.u64()?, body.u64()?);
                let stats = AgentStats { workers, forks, restarts, kills, abandoned_threads: body.u64()? };
                return Some(Self::Pong { heard_ns, clock_ns, stats });
            }
            13 => return Some(Self::Lines(body.sized()?.to_vec())),
            15 => return Some(Self::Warning(body.text()?)),
            14 => return (0..body.u32()?).map(|_| read_in_hand(body)).collect::<Option<_>>().map(Self::InHand),
            _ => {}
        }
        let id = body.u64()?;
        let event = match kind {
            3 => FrameEvent::Begun,
            4 => FrameEvent::Cells(read_samples(body)?),
            5 => read_call(body)?,
            6 => read_failed(body)?,
            7 => {
                let (kind, reason, text) = (body.u8()?, body.text()?, body.text()?);
                FrameEvent::Broken(Note { reason, traceback: traceback(kind, text)? })
            }
            8 => FrameEvent::Used(body.f64()?),
            9 => FrameEvent::Observed(body.u64()?),
            10 => FrameEvent::GivenBack(body.numbers()?),
            _ => FrameEvent::Ended,
        };
        Some(Self::Frame(id, event))
    }
}

fn traceback(kind: u8, text: String) -> Option<Option<Traceback>> {
    Some(match kind {
        NO_TRACEBACK => None,
        RAISED => Some(Traceback::Raised(text)),
        LAST_SEEN => Some(Traceback::LastSeen(text)),
        _ => return None,
    })
}

fn read_in_hand(body: &mut Reader<'_>) -> Option<InHandCall> {
    let (frame, call, phase, age_ns) = (body.u64()?, body.index()?, body.u8()?, body.u64()?);
    let phase = [Phase::Call, Phase::Arguments, Phase::Setup, Phase::Loading].get(usize::from(phase)).copied()?;
    let (place, found, shown) = (body.text()?, body.u8()? != 0, body.text()?);
    Some(InHandCall { frame, call, phase, age_ns, place, stack: if found { Ok(shown) } else { Err(shown) } })
}

fn read_times(body: &mut Reader<'_>) -> Option<Times> {
    Some(Times { started_ns: body.u64()?, run_ns: body.u64()? })
}

fn read_cell(body: &mut Reader<'_>) -> Option<Cell> {
    let (status, value) = (body.u8()?, body.f64()?);
    Some(match status {
        VALUE => Cell::Value(value),
        ABSTAINED => Cell::Abstained,
        INVALID => Cell::Invalid(String::new()),
        status => Cell::Reported(Box::new((Status::from_u8(status.checked_sub(REPORTED)?)?, String::new()))),
    })
}

fn read_samples(body: &mut Reader<'_>) -> Option<Vec<EndedCell>> {
    let number = body.index()?;
    let mut cells = Reader(body.bytes(number.checked_mul(29)?)?);
    let cell =
        |_| Some(EndedCell { call: cells.index()?, cell: read_cell(&mut cells)?, times: read_times(&mut cells)? });
    (0..number).map(cell).collect()
}

fn read_call(body: &mut Reader<'_>) -> Option<FrameEvent> {
    let (call, times, number) = (body.index()?, read_times(body)?, body.index()?);
    let mut values = Reader(body.bytes(number.checked_mul(9)?)?);
    let mut cells = (0..number).map(|_| read_cell(&mut values)).collect::<Option<Vec<_>>>()?;
    for _ in 0..body.u32()? {
        let (index, why) = (body.index()?, body.text()?);
        match cells.get_mut(index)? {
            Cell::Reported(of) => of.1 = why,
            cell => *cell = Cell::Invalid(why),
        }
    }
    let (recorded, json) = (body.u8()?, body.sized()?);
    Some(FrameEvent::Call { call, cells, record: (recorded != 0).then(|| json.to_vec()), times })
}

fn read_failed(body: &mut Reader<'_>) -> Option<FrameEvent> {
    let (call, times, kind, flags, shown) = (body.index()?, read_times(body)?, body.u8()?, body.u8()?, body.u8()?);
    let (wait, answer, reason, stack) = (body.f64()?, body.u16()?, body.text()?, body.text()?);
    let json = body.sized()?;
    let kind = match kind {
        0 => FailureKind::Timeout,
        1 => FailureKind::Error,
        2 => FailureKind::Crashed,
        _ => return None,
    };
    let failure = Failure {
        kind,
        reason,
        traceback: traceback(shown, stack)?,
        retryable: flags & RETRYABLE != 0,
        retry_after: if flags & RETRY_AFTER == 0 { None } else { Duration::try_from_secs_f64(wait).ok() },
        answer: (flags & ANSWER != 0).then_some(Answer::from_u16(answer)),
    };
    let record = (flags & RECORD != 0).then(|| json.to_vec());
    Some(FrameEvent::Failed { call, failure, record, times })
}
