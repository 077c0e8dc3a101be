//! Items: several messages between two Rust processes in one block of bytes.
//!
//! - An item is the `u32` length of what follows its kind, little-endian, the `u8` kind, and the
//!   rest of the message. Kind and rest are an enum in postcard; other bytes may follow.
//! - Nothing is read past the end of an item, and memory is allocated only for bytes that arrived.

use std::ops::Range;

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::byte_reader::ByteReader;

/// Bytes before the kind of an item.
const LENGTH: usize = 4;

/// Reason for refusing bytes that correct processes never send.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ItemError {
    #[error("an item of kind {0} that does not exist or is not well formed")]
    Malformed(u8),
    #[error("an item that is not whole")]
    Truncated,
}

/// Appends an item. `values` writes the bytes after the message; if it returns false, or the item
/// is too long for its length, nothing is written, and this returns false.
pub fn write(message: &impl Serialize, out: &mut Vec<u8>, values: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH]);
    let is_written = postcard::to_io(message, &mut *out).is_ok() && values(out);
    match length(out.len() - start - LENGTH - 1).filter(|_| is_written) {
        Some(length) => out[start..start + LENGTH].copy_from_slice(&length),
        None => out.truncate(start),
    }
    out.len() > start
}

fn length(bytes: usize) -> Option<[u8; LENGTH]> {
    u32::try_from(bytes).ok().map(u32::to_le_bytes)
}

/// The items of a block of bytes.
pub struct Items<'a> {
    block: &'a [u8],
    rest: ByteReader<'a>,
}

impl<'a> Items<'a> {
    #[must_use]
    pub const fn of(block: &'a [u8]) -> Self {
        Self { block, rest: ByteReader(block) }
    }

    /// Returns the next item's message, and the position in the block of the bytes after it.
    pub fn read<T: DeserializeOwned>(&mut self) -> Option<Result<(T, Range<usize>), ItemError>> {
        if self.rest.is_empty() {
            return None;
        }
        let Some(item) = self.next_bytes() else {
            self.rest = ByteReader(&[]);
            return Some(Err(ItemError::Truncated));
        };
        let end = self.block.len() - self.rest.0.len();
        let read = postcard::take_from_bytes(item).map_err(|_| ItemError::Malformed(item[0]));
        Some(read.map(|(message, values)| (message, end - values.len()..end)))
    }

    /// Returns the next item's kind and rest if `read` makes something of them; otherwise the item
    /// is still the next one.
    pub fn read_if<T>(&mut self, read: impl FnOnce(ByteReader<'a>) -> Option<T>) -> Option<T> {
        let before = self.rest;
        let found = self.next_bytes().and_then(|item| read(ByteReader(item)));
        if found.is_none() {
            self.rest = before;
        }
        found
    }

    fn next_bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.rest.u32()? as usize;
        self.rest.bytes(length.checked_add(1)?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn items_without_values_or_of_too_many_bytes_are_not_written() {
        let mut block = b"before".to_vec();
        assert!(!write(&7_u8, &mut block, |out| {
            out.extend_from_slice(b"half");
            false
        }));
        assert_eq!(block, b"before");
        assert_eq!(length(u32::MAX as usize), Some([255; 4]));
        assert_eq!(length(u32::MAX as usize + 1), None);
    }

    proptest! {
        #[test]
        fn items_are_read_back_with_their_values(all in prop::collection::vec((any::<(u8, u64, String)>(), prop::collection::vec(any::<u8>(), 0..40)), 0..6)) {
            let mut block = Vec::new();
            for (message, values) in &all {
                let is_written = write(message, &mut block, |out| {
                    out.extend_from_slice(values);
                    true
                });
                prop_assert!(is_written);
            }
            let mut items = Items::of(&block);
            for (message, values) in &all {
                let (found, place): ((u8, u64, String), _) = items.read().unwrap().unwrap();
                prop_assert_eq!((&found, &block[place]), (message, &values[..]));
            }
            prop_assert!(items.read::<(u8, u64, String)>().is_none());
        }

        #[test]
        fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut items = Items::of(&bytes);
            while items.read::<(u8, Vec<u8>)>().is_some() {}
            prop_assert!(items.rest.is_empty());
        }
    }
}
