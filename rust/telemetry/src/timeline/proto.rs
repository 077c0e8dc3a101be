//! Protobuf's wire format, as much of it as traces need.

/// A message that is being written.
#[derive(Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn varint(&mut self, field: u32, value: u64) {
        put_varint(&mut self.0, u64::from(field) << 3);
        put_varint(&mut self.0, value);
    }

    pub(crate) fn fixed64(&mut self, field: u32, value: u64) {
        put_varint(&mut self.0, u64::from(field) << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn double(&mut self, field: u32, value: f64) {
        self.fixed64(field, value.to_bits());
    }

    pub(crate) fn text(&mut self, field: u32, text: &[u8]) {
        put_varint(&mut self.0, u64::from(field) << 3 | 2);
        put_varint(&mut self.0, text.len() as u64);
        self.0.extend_from_slice(text);
    }

    pub(crate) fn message(&mut self, field: u32, message: &Self) {
        self.text(field, &message.0);
    }
}

pub(crate) fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// A varint of five bytes, whatever its value: so that its place is known before the value.
pub(crate) fn wide_varint(value: u32) -> [u8; 5] {
    std::array::from_fn(|byte| {
        let bits = (value >> (7 * byte as u32)) as u8 & 0x7f;
        if byte < 4 { bits | 0x80 } else { bits }
    })
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

impl<'a> Field<'a> {
    /// A number, however it is written.
    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::Varint(value) | Self::Fixed64(value) => value,
            Self::Fixed32(value) => value as u64,
            Self::Bytes(_) => 0,
        }
    }

    pub(crate) const fn bytes(self) -> &'a [u8] {
        if let Self::Bytes(bytes) = self { bytes } else { &[] }
    }

    pub(crate) fn text(self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }
}

/// The fields of a message, up to its end or the first that breaks off.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) const fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in 0..10_u32 {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << (7 * shift);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Field<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Varint(self.varint()?),
            1 => Field::Fixed64(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        (tag >> 3 != 0).then_some((tag >> 3, field))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn written_values_are_read_back(numbers in prop::collection::vec((1..4000_u32, any::<u64>(), 0..3_u8), 0..20)) {
            let mut message = Message::default();
            for (field, value, how) in &numbers {
                match how {
                    0 => message.varint(*field, *value),
                    1 => message.fixed64(*field, *value),
                    _ => message.text(*field, &value.to_le_bytes()),
                }
            }
            let read: Vec<(u64, u64)> = Fields::of(message.bytes())
                .map(|(field, value)| match value {
                    Field::Bytes(bytes) => (field, u64::from_le_bytes(bytes.try_into().unwrap())),
                    other => (field, other.number()),
                })
                .collect();
            let expected: Vec<(u64, u64)> = numbers.iter().map(|(field, value, _)| (u64::from(*field), *value)).collect();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn nothing_breaks_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let fields = Fields::of(&bytes).count();
            prop_assert!(fields <= bytes.len());
        }

        #[test]
        fn a_wide_varint_is_a_varint(value in any::<u32>()) {
            let mut bytes = vec![8];
            bytes.extend(wide_varint(value));
            prop_assert_eq!(Fields::of(&bytes).next(), Some((1, Field::Varint(u64::from(value)))));
        }
    }
}
