//! Escapes texts by JSON's rules, from any layout that they have in Python.
//!
//! - A lone surrogate, which UTF-8 can't hold, goes as a `\ud83d` escape.
//! - A text can be written in pieces: each begins with the unit in which the last one ended.

use guerdon_wire::text::{RawText, TextKind};

/// The most bytes that one unit becomes.
const LONGEST_UNIT: usize = 6;

/// Bytes of a unit: a character in memory.
const fn width(kind: TextKind) -> usize {
    match kind {
        TextKind::Ascii | TextKind::Latin1 => 1,
        TextKind::Utf16 => 2,
        TextKind::Utf32 => 4,
    }
}

/// The code points of a text, from a unit on.
fn points(text: RawText<'_>, unit: usize) -> impl Iterator<Item = u32> + '_ {
    let width = width(text.kind);
    let rest = text.bytes.get(unit * width..).unwrap_or_default();
    rest.chunks_exact(width).map(|unit| match *unit {
        [one] => u32::from(one),
        [low, high] => u32::from(u16::from_ne_bytes([low, high])),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]),
        _ => 0xFFFD,
    })
}

/// The text as the inside of a JSON string, from a unit on, until `out` has `most` bytes; where the
/// next piece begins, if there is one.
pub fn escape_some(text: RawText<'_>, unit: usize, most: usize, out: &mut Vec<u8>) -> Option<usize> {
    if text.kind != TextKind::Ascii {
        return each_point(text, unit, most, out, escaped_point);
    }
    // Most texts: what needs no escape is copied in runs.
    let room = most.saturating_sub(out.len()) / LONGEST_UNIT;
    let end = if most == usize::MAX { text.bytes.len() } else { text.bytes.len().min(unit + room.max(1)) };
    let mut from = unit;
    for (at, byte) in text.bytes[..end].iter().enumerate().skip(unit) {
        if *byte < 0x20 || matches!(byte, b'"' | b'\\') {
            out.extend_from_slice(&text.bytes[from..at]);
            escaped_point(u32::from(*byte), out);
            from = at + 1;
        }
    }
    out.extend_from_slice(&text.bytes[from..end]);
    (end < text.bytes.len()).then_some(end)
}

/// A text that is JSON already, in the same way.
pub fn plain_some(text: RawText<'_>, unit: usize, most: usize, out: &mut Vec<u8>) -> Option<usize> {
    if text.kind != TextKind::Ascii {
        return each_point(text, unit, most, out, utf8);
    }
    let end = text.bytes.len().min(unit.saturating_add(most.saturating_sub(out.len()).max(1)));
    out.extend_from_slice(&text.bytes[unit..end]);
    (end < text.bytes.len()).then_some(end)
}

fn each_point(
    text: RawText<'_>,
    unit: usize,
    most: usize,
    out: &mut Vec<u8>,
    write: impl Fn(u32, &mut Vec<u8>),
) -> Option<usize> {
    for (at, code) in points(text, unit).enumerate() {
        if out.len() >= most && at > 0 {
            return Some(unit + at);
        }
        write(code, out);
    }
    None
}

/// Bytes of a text, escaped or as it is.
pub fn length(text: RawText<'_>, escaped: bool) -> usize {
    let of_escape = |code: u32| match code {
        0x22 | 0x5C | 0x0A | 0x0D | 0x09 => Some(2),
        0..0x20 | 0xD800..0xE000 => Some(LONGEST_UNIT),
        _ => None,
    };
    let of_point = |code: u32| of_escape(code).filter(|_| escaped).unwrap_or_else(|| letter(code).len_utf8());
    points(text, 0).map(of_point).sum()
}

fn escaped_point(code: u32, out: &mut Vec<u8>) {
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

fn letter(code: u32) -> char {
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn utf8(code: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(letter(code).encode_utf8(&mut [0; 4]).as_bytes());
}
