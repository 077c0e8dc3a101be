//! The body of a request: JSON with the texts of the samples in it.
//!
//! - A text is escaped by JSON's rules, in any layout of Python: the server decodes what the
//!   function would have got.
//! - Making a body takes no lock and allocates only the body, once. A long one is not made at all:
//!   `long_body` writes it in pieces while it is sent.

use guerdon_core::text::RawText;

use crate::escape::{escape, plain_some};

/// A piece of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// JSON as it is.
    Raw(Vec<u8>),
    /// A sample's text in this column, escaped, without quotation marks: it is within a string.
    Text(usize),
    /// A sample's value in this column, as JSON: a string, or JSON already.
    Value(usize),
    /// Place of a repair's messages; nothing where none is needed.
    Repair,
    /// All samples of the request, with `pieces` for each and commas between them.
    Each(Vec<Piece>),
}

/// A sample's text in a column.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    pub raw: RawText<'a>,
    /// It is JSON already.
    pub json: bool,
}

/// The name that a payload gives to columns of JSON.
pub const JSON: &str = "json";

/// Template for the bodies of a function's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyTemplate {
    pub pieces: Vec<Piece>,
}

impl BodyTemplate {
    /// Returns whether an answer that can't be read is sent back with the next attempt.
    #[must_use]
    pub fn takes_repair(&self) -> bool {
        self.pieces.contains(&Piece::Repair)
    }

    /// The same with the messages of a repair, which begin with a comma.
    #[must_use]
    pub fn repaired(&self, messages: &[u8]) -> Self {
        let piece = |piece: &Piece| if *piece == Piece::Repair { Piece::Raw(messages.to_vec()) } else { piece.clone() };
        Self { pieces: self.pieces.iter().map(piece).collect() }
    }

    /// About how many bytes a body for these samples has: exact where nothing needs an escape.
    pub fn bytes<'a, S: Copy>(&self, samples: &[S], text: impl Fn(usize, S) -> Option<Text<'a>>) -> usize {
        bytes(&self.pieces, samples, &text)
    }

    /// The body for these samples; `text` gives a sample's text in a column. `None` if one is not
    /// there.
    pub fn fill<'a, S: Copy>(&self, samples: &[S], text: impl Fn(usize, S) -> Option<Text<'a>>) -> Option<Vec<u8>> {
        let bytes = self.bytes(samples, &text);
        let capacity = bytes + bytes / 32 + 16; // line breaks and quotation marks take two each
        let mut out = Vec::with_capacity(capacity);
        fill(&self.pieces, samples, &text, &mut out)?;
        Some(out)
    }
}

fn bytes<'a, S: Copy>(pieces: &[Piece], samples: &[S], text: &impl Fn(usize, S) -> Option<Text<'a>>) -> usize {
    let of_column = |column: usize| {
        let found = samples.first().and_then(|sample| text(column, *sample));
        found.map_or(0, |text| text.raw.bytes.len())
    };
    let of_piece = |piece: &Piece| match piece {
        Piece::Raw(bytes) => bytes.len(),
        Piece::Repair => 0,
        Piece::Text(column) => of_column(*column),
        Piece::Value(column) => of_column(*column) + 2,
        Piece::Each(pieces) => samples.iter().map(|sample| bytes(pieces, std::slice::from_ref(sample), text) + 1).sum(),
    };
    pieces.iter().map(of_piece).sum()
}

fn fill<'a, S: Copy>(
    pieces: &[Piece],
    samples: &[S],
    text: &impl Fn(usize, S) -> Option<Text<'a>>,
    out: &mut Vec<u8>,
) -> Option<()> {
    for piece in pieces {
        match piece {
            Piece::Raw(bytes) => out.extend_from_slice(bytes),
            Piece::Text(column) => escape(text(*column, *samples.first()?)?.raw, out),
            Piece::Value(column) => match text(*column, *samples.first()?)? {
                Text { raw, json: true } => {
                    plain_some(raw, 0, usize::MAX, out);
                }
                Text { raw, json: false } => {
                    out.push(b'"');
                    escape(raw, out);
                    out.push(b'"');
                }
            },
            Piece::Repair => {}
            Piece::Each(pieces) => {
                for (place, sample) in samples.iter().enumerate() {
                    if place > 0 {
                        out.push(b',');
                    }
                    fill(pieces, std::slice::from_ref(sample), text, out)?;
                }
            }
        }
    }
    Some(())
}

#[cfg(test)]
pub mod tests {
    use guerdon_core::text::TextKind;
    use proptest::prelude::*;

    use super::*;

    pub fn raw(kind: TextKind, bytes: &[u8]) -> RawText<'_> {
        RawText { kind, bytes }
    }

    fn escaped(text: RawText<'_>) -> String {
        let mut out = Vec::new();
        escape(text, &mut out);
        String::from_utf8(out).unwrap()
    }

    /// Returns a text in Python's layout.
    pub fn laid_out(text: &str) -> (TextKind, Vec<u8>) {
        let highest = text.chars().map(u32::from).max().unwrap_or(0);
        let points = text.chars().map(u32::from);
        match highest {
            0..0x80 => (TextKind::Ascii, text.as_bytes().to_vec()),
            0x80..0x100 => (TextKind::Latin1, points.map(|code| code as u8).collect()),
            0x100..0x10000 => (TextKind::Utf16, points.flat_map(|code| (code as u16).to_ne_bytes()).collect()),
            _ => (TextKind::Utf32, points.flat_map(u32::to_ne_bytes).collect()),
        }
    }

    proptest! {
        #[test]
        fn a_server_decodes_what_was_given(text in "\\PC*|[\u{0}-\u{ff}]*|[ -~\\n\"]*|[\u{0}-\u{d7ff}]*|\\p{any}*") {
            let (kind, bytes) = laid_out(&text);
            let json = format!("\"{}\"", escaped(raw(kind, &bytes)));
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }

    #[test]
    fn half_a_surrogate_pair_goes_as_an_escape() {
        let bytes: Vec<u8> = [0x41u16, 0xD83D].iter().flat_map(|unit| unit.to_ne_bytes()).collect();
        assert_eq!(escaped(raw(TextKind::Utf16, &bytes)), "A\\ud83d");
    }

    #[test]
    fn each_sample_stands_in_its_place() {
        let body = BodyTemplate {
            pieces: vec![
                Piece::Raw(br#"{"texts":["#.to_vec()),
                Piece::Each(vec![Piece::Value(0)]),
                Piece::Raw(br#"],"ids":["#.to_vec()),
                Piece::Each(vec![Piece::Value(1)]),
                Piece::Raw(b"]}".to_vec()),
            ],
        };
        let columns = [["a\"", "b"], ["[1]", "[2]"]];
        let text = |column: usize, sample: u32| {
            let raw = raw(TextKind::Ascii, columns.get(column)?.get(sample as usize)?.as_bytes());
            Some(Text { raw, json: column == 1 })
        };
        assert_eq!(body.fill(&[1, 0], text).unwrap(), br#"{"texts":["b","a\""],"ids":[[2],[1]]}"#);
        assert_eq!(body.fill(&[2], text), None);
        let within = BodyTemplate {
            pieces: vec![Piece::Raw(b"\"It says ".to_vec()), Piece::Text(0), Piece::Raw(b"\"".to_vec())],
        };
        assert_eq!(within.fill(&[0], text).unwrap(), br#""It says a\"""#);
    }
}
