//! Values as the numbers of a file that processes share.

/// A value that is a fixed number of words, each of 8 bytes.
pub(crate) trait Words: Sized {
    const COUNT: usize = size_of::<Self>() / 8;

    fn put(&self, words: &mut Vec<u64>);

    /// Takes what `put` adds.
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

/// Makes the words of a struct out of those of its fields. Another order or number of them is
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
