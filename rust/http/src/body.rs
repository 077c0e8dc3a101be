//! The body of a request: JSON with the texts of the samples in it.
//!
//! - A text is escaped as JSON wants it, whatever its layout in Python: the server decodes what the
//!   function would have got. A lone surrogate, which UTF-8 can't hold, goes as a `\ud83d` escape.
//! - Making a body takes no lock and allocates only the body.

use guerdon_core::text::{RawText, TextKind};

/// A piece of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// JSON as it is.
    Raw(Vec<u8>),
    /// A sample's text in this column, escaped, without quotation marks: it stands within a string.
    Text(usize),
    /// A sample's value in this column, as JSON: a string, or what is JSON already.
    Value(usize),
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

/// How the bodies of a function's requests are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyTemplate {
    pub pieces: Vec<Piece>,
}

impl BodyTemplate {
    /// The body for these samples; `text` gives a sample's text in a column. `None` if one is not
    /// there.
    pub fn fill<'a, S: Copy>(&self, samples: &[S], text: impl Fn(usize, S) -> Option<Text<'a>>) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(1024);
        fill(&self.pieces, samples, &text, &mut out)?;
        Some(out)
    }
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
                Text { raw, json: true } => unescaped(raw, out),
                Text { raw, json: false } => {
                    out.push(b'"');
                    escape(raw, out);
                    out.push(b'"');
                }
            },
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

/// The code points of a text.
fn points(text: RawText<'_>) -> impl Iterator<Item = u32> + '_ {
    let width = match text.kind {
        TextKind::Ascii | TextKind::Latin1 => 1,
        TextKind::Utf16 => 2,
        TextKind::Utf32 => 4,
    };
    text.bytes.chunks_exact(width).map(|unit| match *unit {
        [one] => u32::from(one),
        [low, high] => u32::from(u16::from_ne_bytes([low, high])),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]),
        _ => 0xFFFD,
    })
}

/// The text as the inside of a JSON string.
fn escape(text: RawText<'_>, out: &mut Vec<u8>) {
    if text.kind == TextKind::Ascii {
        // Most texts: what needs no escape is copied in runs.
        let mut from = 0;
        for (at, byte) in text.bytes.iter().enumerate() {
            if *byte < 0x20 || matches!(byte, b'"' | b'\\') {
                out.extend_from_slice(&text.bytes[from..at]);
                point(u32::from(*byte), out);
                from = at + 1;
            }
        }
        out.extend_from_slice(&text.bytes[from..]);
        return;
    }
    for code in points(text) {
        point(code, out);
    }
}

fn point(code: u32, out: &mut Vec<u8>) {
    match code {
        0x22 => out.extend_from_slice(b"\\\""),
        0x5C => out.extend_from_slice(b"\\\\"),
        0x0A => out.extend_from_slice(b"\\n"),
        0x0D => out.extend_from_slice(b"\\r"),
        0x09 => out.extend_from_slice(b"\\t"),
        0..0x20 | 0xD800..0xE000 => out.extend_from_slice(format!("\\u{code:04x}").as_bytes()),
        _ => utf8(code, out),
    }
}

fn utf8(code: u32, out: &mut Vec<u8>) {
    let letter = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
}

/// A text that is JSON already.
fn unescaped(text: RawText<'_>, out: &mut Vec<u8>) {
    if text.kind == TextKind::Ascii {
        out.extend_from_slice(text.bytes);
    } else {
        points(text).for_each(|code| utf8(code, out));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn raw(kind: TextKind, bytes: &[u8]) -> RawText<'_> {
        RawText { kind, bytes }
    }

    fn escaped(text: RawText<'_>) -> String {
        let mut out = Vec::new();
        escape(text, &mut out);
        String::from_utf8(out).unwrap()
    }

    /// A text as Python would lay it out.
    fn laid_out(text: &str) -> (TextKind, Vec<u8>) {
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
