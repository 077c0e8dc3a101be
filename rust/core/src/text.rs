//! Texts as payloads hold them: the bytes of a Python string, never transcoded.

/// How the characters of a text lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum TextKind {
    /// One byte each, all below 128.
    Ascii = 0,
    /// One byte each.
    Latin1 = 1,
    /// Two bytes each, no surrogates (a text of two-byte characters that has any is widened to
    /// `Utf32`).
    Utf16 = 2,
    /// Four bytes each; surrogates are characters like any other.
    Utf32 = 4,
}

/// A text as it lies in its Python string.
#[derive(Clone, Copy, Debug)]
pub struct RawText<'a> {
    pub kind: TextKind,
    pub bytes: &'a [u8],
}
