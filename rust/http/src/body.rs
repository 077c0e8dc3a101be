//! The body of a request: JSON with the texts of the samples in it.
//!
//! - A text is escaped by JSON's rules, in any layout of Python: the server decodes what the
//!   function would have got.
//! - Making a body takes no lock. A long one is not made at all: `long_body` writes it in pieces
//!   while it is sent.

use guerdon_wire::text::RawText;
use serde::Deserialize;

use crate::escape::{escape_some, length, plain_some};

/// A piece of a body.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Piece {
    /// JSON as it is.
    Raw(#[serde(with = "serde_bytes")] Vec<u8>),
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

/// A part of a body that is written without a choice, with the sample's place in the request.
#[derive(Clone, Copy)]
pub enum BodyPart {
    /// A piece of the template, or one within it.
    Template(usize, Option<usize>),
    Mark(u8),
    Escaped(usize, usize),
    Json(usize, usize),
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

    /// The parts of a body for this many samples; `text` gives a text in a column, of the sample in
    /// a place. `None` if one is not there.
    pub fn parts<'a>(&self, samples: usize, text: &impl Fn(usize, usize) -> Option<Text<'a>>) -> Option<Vec<BodyPart>> {
        let mut parts = Vec::with_capacity(self.pieces.len());
        for (index, piece) in self.pieces.iter().enumerate() {
            let Piece::Each(pieces) = piece else {
                add(&mut parts, piece, (index, None), 0, text)?;
                continue;
            };
            for place in 0..samples {
                if place > 0 {
                    parts.push(BodyPart::Mark(b','));
                }
                for (inner, piece) in pieces.iter().enumerate() {
                    add(&mut parts, piece, (index, Some(inner)), place, text)?;
                }
            }
        }
        Some(parts)
    }

    /// Returns the bytes of a body of these parts, `exact` or if nothing needs an escape.
    pub fn bytes<'a>(
        &self,
        parts: &[BodyPart],
        text: &impl Fn(usize, usize) -> Option<Text<'a>>,
        exact: bool,
    ) -> usize {
        let of_text = |column, place, escaped| {
            let raw = text(column, place).map(|text| text.raw);
            raw.map_or(0, |raw| if exact { length(raw, escaped) } else { raw.bytes.len() })
        };
        let of_part = |part: &BodyPart| match *part {
            BodyPart::Template(index, inner) => self.of_template(index, inner).len(),
            BodyPart::Mark(_) => 1,
            BodyPart::Escaped(column, place) => of_text(column, place, true),
            BodyPart::Json(column, place) => of_text(column, place, false),
        };
        parts.iter().map(of_part).sum()
    }

    /// Writes a part, from a unit of it on, until `out` has about `most` bytes; where the next
    /// piece begins, if there is one.
    pub fn write<'a>(
        &self,
        part: BodyPart,
        unit: usize,
        most: usize,
        text: &impl Fn(usize, usize) -> Option<Text<'a>>,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        match part {
            BodyPart::Template(index, inner) => {
                let rest = &self.of_template(index, inner)[unit..];
                let room = rest.len().min(most.saturating_sub(out.len()));
                out.extend_from_slice(&rest[..room]);
                (room < rest.len()).then_some(unit + room)
            }
            BodyPart::Mark(mark) => {
                out.push(mark);
                None
            }
            BodyPart::Escaped(column, place) => escape_some(text(column, place)?.raw, unit, most, out),
            BodyPart::Json(column, place) => plain_some(text(column, place)?.raw, unit, most, out),
        }
    }

    fn of_template(&self, index: usize, inner: Option<usize>) -> &[u8] {
        match (self.pieces.get(index), inner) {
            (Some(Piece::Each(pieces)), Some(inner)) => pieces.get(inner).map_or(&[], Piece::raw),
            (piece, _) => piece.map_or(&[], Piece::raw),
        }
    }

    /// The body of these parts.
    pub fn fill<'a>(&self, parts: &[BodyPart], text: &impl Fn(usize, usize) -> Option<Text<'a>>) -> Vec<u8> {
        let bytes = self.bytes(parts, text, false);
        let mut out = Vec::with_capacity(bytes + bytes / 32 + 16); // line breaks take two each
        for part in parts {
            self.write(*part, 0, usize::MAX, text, &mut out);
        }
        out
    }
}

impl Piece {
    fn raw(&self) -> &[u8] {
        if let Self::Raw(bytes) = self { bytes } else { &[] }
    }
}

fn add<'a>(
    parts: &mut Vec<BodyPart>,
    piece: &Piece,
    (index, inner): (usize, Option<usize>),
    place: usize,
    text: &impl Fn(usize, usize) -> Option<Text<'a>>,
) -> Option<()> {
    match *piece {
        Piece::Raw(_) => parts.push(BodyPart::Template(index, inner)),
        Piece::Text(column) => {
            text(column, place)?;
            parts.push(BodyPart::Escaped(column, place));
        }
        Piece::Value(column) if text(column, place)?.json => parts.push(BodyPart::Json(column, place)),
        Piece::Value(column) => {
            parts.extend([BodyPart::Mark(b'"'), BodyPart::Escaped(column, place), BodyPart::Mark(b'"')]);
        }
        Piece::Repair => {}
        Piece::Each(_) => return None, // a list of lists is in no template
    }
    Some(())
}

#[cfg(test)]
pub mod tests {
    use guerdon_wire::text::TextKind;
    use proptest::prelude::*;

    use super::*;

    pub fn raw(kind: TextKind, bytes: &[u8]) -> RawText<'_> {
        RawText { kind, bytes }
    }

    fn escaped(text: RawText<'_>) -> String {
        let mut out = Vec::new();
        escape_some(text, 0, usize::MAX, &mut out);
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
        let of = |samples: &[usize], body: &BodyTemplate| {
            let text = |column: usize, place: usize| {
                let raw = raw(TextKind::Ascii, columns.get(column)?.get(samples[place])?.as_bytes());
                Some(Text { raw, json: column == 1 })
            };
            Some(body.fill(&body.parts(samples.len(), &text)?, &text))
        };
        assert_eq!(of(&[1, 0], &body).unwrap(), br#"{"texts":["b","a\""],"ids":[[2],[1]]}"#);
        assert_eq!(of(&[2], &body), None);
        let within = BodyTemplate {
            pieces: vec![Piece::Raw(b"\"It says ".to_vec()), Piece::Text(0), Piece::Raw(b"\"".to_vec())],
        };
        assert_eq!(of(&[0], &within).unwrap(), br#""It says a\"""#);
    }
}
