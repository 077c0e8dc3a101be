//! Texts as payloads hold them: the bytes of a Python string, never transcoded.

/// Form of a text's characters in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum TextKind {
    /// One byte each, all below 128.
    Ascii = 0,
    /// One byte each.
    Latin1 = 1,
    /// Two bytes each, without surrogates (a text of two-byte characters with surrogates is widened
    /// to `Utf32`).
    Utf16 = 2,
    /// Four bytes each; surrogates are characters like any other.
    Utf32 = 4,
}

/// A text in the form of its Python string.
#[derive(Clone, Copy, Debug)]
pub struct RawText<'a> {
    pub kind: TextKind,
    pub bytes: &'a [u8],
}

impl RawText<'_> {
    /// Returns the text; lone surrogates, which a Rust string cannot hold, become U+FFFD.
    #[must_use]
    pub fn to_text(&self) -> String {
        let wide = |character: u32| char::from_u32(character).unwrap_or(char::REPLACEMENT_CHARACTER);
        match self.kind {
            TextKind::Ascii => String::from_utf8_lossy(self.bytes).into_owned(),
            TextKind::Latin1 => self.bytes.iter().map(|byte| char::from(*byte)).collect(),
            TextKind::Utf16 => {
                self.bytes.as_chunks::<2>().0.iter().map(|unit| wide(u16::from_ne_bytes(*unit).into())).collect()
            }
            TextKind::Utf32 => {
                self.bytes.as_chunks::<4>().0.iter().map(|unit| wide(u32::from_ne_bytes(*unit))).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_each_kind_are_read() {
        let text = |kind, bytes: &[u8]| RawText { kind, bytes }.to_text();
        assert_eq!(text(TextKind::Ascii, b"a b"), "a b");
        assert_eq!(text(TextKind::Latin1, &[0x61, 0xe4]), "aä");
        let units: Vec<u8> = [0x61_u16, 0x20ac, 0xd800].iter().flat_map(|unit| unit.to_ne_bytes()).collect();
        assert_eq!(text(TextKind::Utf16, &units), "a€\u{fffd}");
        let units: Vec<u8> = [0x1f600_u32, 0xdfff].iter().flat_map(|unit| unit.to_ne_bytes()).collect();
        assert_eq!(text(TextKind::Utf32, &units), "😀\u{fffd}");
    }
}
