//! Reads items, and texts and lists of numbers off their front; `None` past the end.

pub(super) use guerdon_core::byte_reader::ByteReader as Reader;

use super::WireError;

/// Most bytes kept of a text.
const LONGEST_TEXT: usize = 64 << 10;

/// The items of a message.
pub(crate) struct Items<'a>(Reader<'a>);

impl<'a> Items<'a> {
    pub(crate) const fn of(message: &'a [u8]) -> Self {
        Self(Reader(message))
    }

    /// The next item: its kind and body.
    pub(super) fn next_item(&mut self) -> Option<Result<(u8, Reader<'a>), WireError>> {
        if self.0.is_empty() {
            return None;
        }
        let mut read = || {
            let (length, kind) = (self.0.u32()?, self.0.u8()?);
            Some((kind, Reader(self.0.bytes(length as usize)?)))
        };
        let item = read().ok_or(WireError::Truncated);
        if item.is_err() {
            self.0 = Reader(&[]);
        }
        Some(item)
    }
}

/// Items beside plain numbers and bytes.
pub(super) trait ReadItem<'a> {
    fn index(&mut self) -> Option<usize>;

    /// Bytes with their length before them.
    fn sized(&mut self) -> Option<&'a [u8]>;

    /// A text with its length before it, of which not too much is kept.
    fn text(&mut self) -> Option<String>;

    /// Numbers with their count before them.
    fn numbers(&mut self) -> Option<Vec<usize>>;
}

impl<'a> ReadItem<'a> for Reader<'a> {
    fn index(&mut self) -> Option<usize> {
        self.u32().map(|number| number as usize)
    }

    fn sized(&mut self) -> Option<&'a [u8]> {
        let length = self.index()?;
        self.bytes(length)
    }

    fn text(&mut self) -> Option<String> {
        let bytes = self.sized()?;
        let kept = &bytes[..bytes.len().min(LONGEST_TEXT)];
        Some(String::from_utf8_lossy(kept).into_owned())
    }

    fn numbers(&mut self) -> Option<Vec<usize>> {
        let count = self.index()?;
        let mut numbers = Reader(self.bytes(count.checked_mul(4)?)?);
        (0..count).map(|_| numbers.index()).collect()
    }
}
