//! Reads numbers and bytes from the front of a message, little-endian. A read past the end returns
//! `None`, whatever the bytes are.

/// The bytes left to read.
#[derive(Clone, Copy, Debug)]
pub struct ByteReader<'a>(pub &'a [u8]);

impl<'a> ByteReader<'a> {
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn f64(&mut self) -> Option<f64> {
        self.array().map(f64::from_le_bytes)
    }

    pub fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_bytes_are_not_read() {
        let mut reader = ByteReader(&[1, 2, 0, 9, 9]);
        assert_eq!((reader.u8(), reader.u16()), (Some(1), Some(2)));
        assert_eq!((reader.u32(), reader.bytes(3)), (None, None), "and what is there stays");
        assert_eq!((reader.bytes(2), reader.is_empty()), (Some(&[9, 9][..]), true));
        assert_eq!((reader.u8(), reader.bytes(0)), (None, Some(&[][..])));
    }
}
