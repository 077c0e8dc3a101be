//! Inputs of a kernel, from the texts of a batch.

use std::borrow::Cow;

use crate::kernels::{Input, InputForm};
use guerdon_wire::text::{RawText, TextKind};

/// Kind of a column's texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// Texts as they are.
    Text,
    /// Made of a column's values: JSON, or token ids as one-byte characters, four per id. A text
    /// that begins with `WRONG` contains the reason why the value is neither.
    Made,
}

impl InputKind {
    /// Returns the kind, which is a column's name in a batch.
    #[must_use]
    pub fn of(name: &str) -> Self {
        if name == "made" { Self::Made } else { Self::Text }
    }
}

/// The last 2048 characters, one for each surrogate: like surrogates they are neither letters nor
/// space.
const PRIVATE: u32 = 0x0010_f800;

/// A character of no text: neither JSON nor ids begin with it.
const WRONG: char = '\u{fffe}';

/// Converts a text of a column into the input of a kernel.
pub fn read_input(raw: RawText<'_>, kind: InputKind, form: InputForm) -> Input<'_> {
    if form == InputForm::Ids && raw.kind <= TextKind::Latin1 {
        return match raw.bytes.as_chunks::<4>() {
            (ids, []) => Input::Ids(ids.iter().map(|id| u32::from_le_bytes(*id)).collect()),
            _ => Input::Wrong("these are no token ids".to_owned()),
        };
    }
    let text = text(raw);
    match (kind, text.strip_prefix(WRONG)) {
        (InputKind::Text, _) => Input::Text(text),
        (InputKind::Made, Some(why)) => Input::Wrong(why.to_owned()),
        (InputKind::Made, None) => Input::Json(text),
    }
}

/// Converts the text character by character. Half a surrogate pair, which Rust's texts can't hold,
/// becomes a private character, so that texts are equal exactly if they are equal in Python.
fn text(raw: RawText<'_>) -> Cow<'_, str> {
    match raw.kind {
        TextKind::Ascii => String::from_utf8_lossy(raw.bytes),
        TextKind::Latin1 => Cow::Owned(raw.bytes.iter().map(|byte| char::from(*byte)).collect()),
        TextKind::Utf16 => {
            let units = raw.bytes.as_chunks::<2>().0.iter();
            Cow::Owned(units.map(|unit| character(u16::from_ne_bytes(*unit).into())).collect())
        }
        TextKind::Utf32 => {
            let units = raw.bytes.as_chunks::<4>().0.iter();
            Cow::Owned(units.map(|unit| character(u32::from_ne_bytes(*unit))).collect())
        }
    }
}

fn character(unit: u32) -> char {
    let private = || char::from_u32(PRIVATE + unit.wrapping_sub(0xd800) % 0x800);
    char::from_u32(unit).or_else(private).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    //! Texts of each kind, token ids, and values of neither.

    use super::*;

    #[test]
    fn texts_and_ids_are_read() {
        let read =
            |kind, bytes: &[u8], form| format!("{:?}", read_input(RawText { kind, bytes }, InputKind::Text, form));
        assert_eq!(read(TextKind::Ascii, b"a", InputForm::Text), "Text(\"a\")");
        assert_eq!(read(TextKind::Latin1, &[0xe4], InputForm::Text), "Text(\"ä\")");
        assert_eq!(read(TextKind::Utf16, &0x20ac_u16.to_ne_bytes(), InputForm::References), "Text(\"€\")");
        assert_eq!(read(TextKind::Utf32, &0x1f600_u32.to_ne_bytes(), InputForm::Text), "Text(\"😀\")");
        assert_eq!(read(TextKind::Utf32, &0xd800_u32.to_ne_bytes(), InputForm::Text), "Text(\"\\u{10f800}\")");
        assert_eq!(read(TextKind::Utf16, &0xdfff_u16.to_ne_bytes(), InputForm::Text), "Text(\"\\u{10ffff}\")");
        assert_eq!(read(TextKind::Latin1, &[1, 2, 0, 0, 255, 0, 0, 0], InputForm::Ids), "Ids([513, 255])");
        assert!(read(TextKind::Ascii, b"abc", InputForm::Ids).starts_with("Wrong"));
    }

    #[test]
    fn wrong_bodies_are_reported() {
        let units: Vec<u8> = "\u{fffe}no".encode_utf16().flat_map(u16::to_ne_bytes).collect();
        let read =
            |kind, form| format!("{:?}", read_input(RawText { kind: TextKind::Utf16, bytes: &units }, kind, form));
        for form in [InputForm::Ids, InputForm::Json, InputForm::References] {
            assert_eq!(read(InputKind::Made, form), "Wrong(\"no\")");
        }
        assert_eq!(read(InputKind::Text, InputForm::References), "Text(\"\\u{fffe}no\")");
        let json = read_input(RawText { kind: TextKind::Ascii, bytes: b"[1]" }, InputKind::Made, InputForm::Json);
        assert_eq!(format!("{json:?}"), "Json(\"[1]\")");
    }
}
