//! Messages of a worker. A worker is not trusted: no bytes make the parser panic, or allocate more
//! memory than a message of their kind may have; longer reasons and tracebacks are truncated.

use std::time::Duration;

use guerdon_core::outcome::{Answer, Cell};
use guerdon_wire::byte_reader::ByteReader;
use thiserror::Error;

use super::NONE;

/// Most bytes of a body from a worker: cells of a call, a record, the text of a failure.
const LARGEST_CELLS: usize = 64 << 20;
const LARGEST_RECORD: usize = 16 << 20;
const LARGEST_TEXT: usize = 1 << 20;
/// Most bytes kept of a reason or a traceback, and of all reasons of one message.
const LONGEST_TEXT: usize = 32 << 10;
const LONGEST_REASONS: usize = 4 << 20;
/// Marks the end of a truncated text.
const TRUNCATED: &str = "… (shortened)";
const HEADER: usize = 16;
const NO_ANSWER: u16 = u16::MAX;

/// Messages of a worker.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    Ready,
    Done {
        frame: u64,
        ran: usize,
        retire: bool,
    },
    Fail {
        frame: u64,
        call: usize,
        text: Text,
        retry_after: Option<Duration>,
        answer: Option<Answer>,
        retryable: bool,
        expired: bool,
    },
    Used {
        frame: u64,
        call: usize,
        tokens: f64,
    },
    Cells {
        frame: u64,
        call: usize,
        cells: Vec<Cell>,
    },
    Record {
        frame: u64,
        call: usize,
        json: Vec<u8>,
    },
    SetupFailed {
        frame: u64,
        text: Text,
        expired: bool,
        /// True if it was about to import modules for its arguments.
        imports: bool,
    },
    Begun {
        frame: u64,
        prepared: bool,
    },
}

/// Reason and traceback of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub reason: String,
    pub traceback: Option<String>,
}

/// Reason for refusing bytes that correct workers never send.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum WireError {
    #[error("a message of kind {0}, which there is not")]
    UnknownKind(u8),
    #[error("a message of {0} bytes, which is too large")]
    Size(usize),
    #[error("a message of kind {0} that is not well formed")]
    Malformed(u8),
}

/// Collects bytes and returns complete messages.
#[derive(Default)]
pub(crate) struct Parser {
    bytes: Vec<u8>,
    used: usize,
}

impl Parser {
    /// Returns the buffer to read into: appended bytes are parsed next.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.used > 0 {
            self.bytes.drain(..self.used);
            self.used = 0;
        }
        &mut self.bytes
    }

    /// Returns the next complete message.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, WireError> {
        let rest = &self.bytes[self.used..];
        let Some((header, rest)) = rest.split_first_chunk::<HEADER>() else { return Ok(None) };
        let mut header = ByteReader(header);
        let (Some(length), Some(kind), Some(flags), Some(call), Some(frame)) =
            (header.u32(), header.u8(), header.u8(), header.u16(), header.u64())
        else {
            return Ok(None);
        };
        let length = length as usize;
        if length > largest(kind) {
            return Err(WireError::Size(length));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let message = parse(kind, flags, usize::from(call), frame, ByteReader(body))?;
        self.used += HEADER + length;
        Ok(Some(message))
    }
}

/// Most bytes of a message of this kind.
const fn largest(kind: u8) -> usize {
    match kind {
        4 => LARGEST_CELLS,
        5 => LARGEST_RECORD,
        _ => LARGEST_TEXT,
    }
}

fn parse(kind: u8, flags: u8, call: usize, frame: u64, mut body: ByteReader<'_>) -> Result<Message, WireError> {
    let expired = flags & 2 != 0;
    let message = match kind {
        1 => Some(Message::Ready),
        2 => Some(Message::Done { frame, ran: call, retire: flags & 1 != 0 }),
        3 => body.f64().zip(body.u16()).zip(text(&mut body)).map(|((seconds, answer), text)| {
            let retry_after = Duration::try_from_secs_f64(seconds).ok();
            let answer = (answer != NO_ANSWER).then_some(Answer::from_u16(answer));
            Message::Fail { frame, call, text, retry_after, answer, retryable: flags & 1 != 0, expired }
        }),
        4 => cells(&mut body).map(|cells| Message::Cells { frame, call, cells }),
        5 => Some(Message::Record { frame, call, json: body.0.to_vec() }),
        6 => text(&mut body).map(|text| Message::SetupFailed { frame, text, expired, imports: flags & 4 != 0 }),
        7 => Some(Message::Begun { frame, prepared: flags & 1 != 0 }),
        8 => body.f64().map(|tokens| Message::Used { frame, call, tokens }),
        _ => return Err(WireError::UnknownKind(kind)),
    };
    message.ok_or(WireError::Malformed(kind))
}

/// Reads a text, of which at most `most` bytes are kept.
fn string(body: &mut ByteReader<'_>, length: usize, most: usize) -> Option<String> {
    let bytes = body.bytes(length)?;
    let kept = &bytes[..bytes.len().min(most)];
    let text = String::from_utf8_lossy(kept);
    Some(if kept.len() < bytes.len() { format!("{text}{TRUNCATED}") } else { text.into_owned() })
}

fn text(body: &mut ByteReader<'_>) -> Option<Text> {
    let (reason, traceback) = (body.u32()?, body.u32()?);
    let reason = string(body, reason as usize, LONGEST_TEXT)?;
    let traceback = if traceback == NONE { None } else { Some(string(body, traceback as usize, LONGEST_TEXT)?) };
    Some(Text { reason, traceback })
}

fn cells(body: &mut ByteReader<'_>) -> Option<Vec<Cell>> {
    let number = body.u32()? as usize;
    // Each value has nine bytes. A number that the body can't hold is refused before any allocation
    // for it.
    let mut values = ByteReader(body.bytes(number.checked_mul(9)?)?);
    let mut cells = Vec::with_capacity(number);
    while let (Some(status), Some(value)) = (values.u8(), values.f64()) {
        cells.push(match status {
            0 => Cell::Value(value),
            1 => Cell::Abstained,
            _ => Cell::Invalid(String::new()),
        });
    }
    let mut left = LONGEST_REASONS;
    while !body.is_empty() {
        let (index, length) = (body.u32()? as usize, body.u32()? as usize);
        *cells.get_mut(index)? = Cell::Invalid(string(body, length, left.min(LONGEST_TEXT))?);
        left = left.saturating_sub(length);
    }
    Some(cells)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::count;
    use super::*;

    fn message(kind: u8, flags: u8, call: u16, frame: u64, body: &[u8]) -> Vec<u8> {
        let mut out = count(body.len()).to_vec();
        out.extend_from_slice(&[kind, flags]);
        out.extend_from_slice(&call.to_le_bytes());
        out.extend_from_slice(&frame.to_le_bytes());
        out.extend_from_slice(body);
        out
    }

    fn text(reason: &str, traceback: Option<&str>) -> Vec<u8> {
        let mut out = count(reason.len()).to_vec();
        out.extend_from_slice(&traceback.map_or(NONE.to_le_bytes(), |text| count(text.len())));
        out.extend_from_slice(reason.as_bytes());
        out.extend_from_slice(traceback.unwrap_or_default().as_bytes());
        out
    }

    #[test]
    fn a_message_that_comes_in_pieces_is_given_when_it_is_whole() {
        let body =
            [7.5f64.to_le_bytes().to_vec(), 429u16.to_le_bytes().to_vec(), text("ValueError: no", Some("File x"))]
                .concat();
        let bytes = message(3, 1, 9, 4, &body);
        let mut parser = Parser::default();
        for byte in &bytes[..bytes.len() - 1] {
            parser.buffer().push(*byte);
            assert_eq!(parser.next(), Ok(None));
        }
        parser.buffer().push(bytes[bytes.len() - 1]);
        let wanted = Message::Fail {
            frame: 4,
            call: 9,
            text: Text { reason: "ValueError: no".to_owned(), traceback: Some("File x".to_owned()) },
            retry_after: Some(Duration::from_millis(7500)),
            answer: Some(Answer::Status(429)),
            retryable: true,
            expired: false,
        };
        assert_eq!(parser.next(), Ok(Some(wanted)));
        assert_eq!(parser.next(), Ok(None));
    }

    #[test]
    fn cells_carry_values_and_reasons() {
        let mut body = count(3).to_vec();
        for (status, value) in [(0, 1.5f64), (1, f64::NAN), (3, f64::NAN)] {
            body.push(status);
            body.extend_from_slice(&value.to_le_bytes());
        }
        body.extend_from_slice(&count(2));
        body.extend_from_slice(&count(2));
        body.extend_from_slice(b"no");
        let mut parser = Parser::default();
        parser.buffer().extend_from_slice(&message(4, 0, 1, 2, &body));
        let cells = vec![Cell::Value(1.5), Cell::Abstained, Cell::Invalid("no".to_owned())];
        assert_eq!(parser.next(), Ok(Some(Message::Cells { frame: 2, call: 1, cells })));
    }

    #[test]
    fn a_message_that_announces_too_much_is_refused_before_it_is_held() {
        let mut parser = Parser::default();
        parser.buffer().extend_from_slice(&message(5, 0, 0, 0, &[])[4..]);
        let mut bytes = (u32::MAX).to_le_bytes().to_vec();
        bytes.extend_from_slice(&message(5, 0, 0, 0, &[])[4..]);
        let mut parser = Parser::default();
        parser.buffer().extend_from_slice(&bytes);
        assert_eq!(parser.next(), Err(WireError::Size(u32::MAX as usize)));
    }

    #[test]
    fn a_message_has_the_size_that_its_kind_may_have() {
        for (kind, most) in [(2, LARGEST_TEXT), (3, LARGEST_TEXT), (5, LARGEST_RECORD), (4, LARGEST_CELLS)] {
            let mut parser = Parser::default();
            parser.buffer().extend_from_slice(&count(most));
            parser.buffer().extend_from_slice(&message(kind, 0, 0, 0, &[])[4..]);
            assert_eq!(parser.next(), Ok(None), "it may come yet");
            let mut parser = Parser::default();
            parser.buffer().extend_from_slice(&count(most + 1));
            parser.buffer().extend_from_slice(&message(kind, 0, 0, 0, &[])[4..]);
            assert_eq!(parser.next(), Err(WireError::Size(most + 1)));
        }
    }

    #[test]
    fn long_reasons_are_truncated_each_and_together() {
        let long = "x".repeat(LONGEST_TEXT + 1);
        let mut parser = Parser::default();
        parser.buffer().extend_from_slice(&message(6, 0, 0, 1, &text(&long, Some(&long))));
        let Ok(Some(Message::SetupFailed { text: Text { reason, traceback }, .. })) = parser.next() else { panic!() };
        assert!(reason.len() == LONGEST_TEXT + TRUNCATED.len() && reason.ends_with(TRUNCATED));
        assert_eq!(traceback.as_deref(), Some(reason.as_str()));

        let cells = 200;
        let mut body = count(cells).to_vec();
        body.resize(4 + 9 * cells, 3);
        for index in 0..cells {
            body.extend_from_slice(&count(index));
            body.extend_from_slice(&count(long.len()));
            body.extend_from_slice(long.as_bytes());
        }
        parser.buffer().extend_from_slice(&message(4, 0, 0, 1, &body));
        let Ok(Some(Message::Cells { cells, .. })) = parser.next() else { panic!() };
        let held: usize = cells.iter().map(|cell| if let Cell::Invalid(why) = cell { why.len() } else { 0 }).sum();
        assert!(held < LONGEST_REASONS + 201 * TRUNCATED.len(), "{held} bytes");
        assert!(matches!(&cells[199], Cell::Invalid(why) if why == TRUNCATED));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..20)) {
            let mut parser = Parser::default();
            for chunk in chunks {
                parser.buffer().extend_from_slice(&chunk);
                while let Ok(Some(_)) = parser.next() {}
            }
        }

        #[test]
        fn no_body_makes_the_parser_panic(kind in 0u8..10, flags: u8, call: u16, frame: u64, body in prop::collection::vec(prop_oneof![Just(0u8), Just(255), any::<u8>()], 0..200)) {
            let mut parser = Parser::default();
            parser.buffer().extend_from_slice(&message(kind, flags, call, frame, &body));
            let _ = parser.next();
        }
    }
}
