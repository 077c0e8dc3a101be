//! Values as numbers of 8 bytes in a file that processes share.

/// A value that is a fixed number of words of 8 bytes each.
pub(crate) trait Words: Sized {
    const COUNT: usize = size_of::<Self>() / 8;

    fn put(&self, words: &mut Vec<u64>);

    /// Reads the words that `put` writes.
    fn take(words: &mut impl Iterator<Item = u64>) -> Self;
}

impl Words for u64 {
    fn put(&self, words: &mut Vec<u64>) {
        words.push(*self);
    }

    fn take(words: &mut impl Iterator<Item = u64>) -> Self {
        words.next().unwrap_or_default()
    }
}

impl Words for f64 {
    fn put(&self, words: &mut Vec<u64>) {
        words.push(self.to_bits());
    }

    fn take(words: &mut impl Iterator<Item = u64>) -> Self {
        Self::from_bits(u64::take(words))
    }
}

/// Defines the words of a struct from the words of its fields. Another order or number of fields is
/// another version of the files that have them.
macro_rules! words_of {
    ($name:ty: $($field:ident),+) => {
        impl crate::words::Words for $name {
            fn put(&self, words: &mut Vec<u64>) {
                $(self.$field.put(words);)+
            }

            fn take(words: &mut impl Iterator<Item = u64>) -> Self {
                Self { $($field: crate::words::Words::take(words)),+ }
            }
        }
    };
}
pub(crate) use words_of;
