//! The choice that counts, of an answer that may have several: the one with the index 0.
//!
//! Choices may come in any order, and each event of a stream may be of another one: what two of
//! them say is never joined.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

use crate::raw_json::{Raw, number};

/// One of several choices.
pub(super) trait IndexedChoice {
    /// Its place among them, where the server says.
    fn index(&self) -> Raw<'_>;
}

/// The choice that counts, if it is there.
#[derive(Debug)]
pub(super) struct FirstChoice<T>(pub Option<T>);

impl<T> Default for FirstChoice<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: IndexedChoice + Deserialize<'de>> Deserialize<'de> for FirstChoice<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Choices<T>(PhantomData<T>);

        impl<'de, T: IndexedChoice + Deserialize<'de>> Visitor<'de> for Choices<T> {
            type Value = Option<T>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut choices: A) -> Result<Option<T>, A::Error> {
                let mut chosen = None;
                while let Some(choice) = choices.next_element::<T>()? {
                    // An answer without an index is the first one.
                    let counts = choice.index().is_none_or(|index| number(Some(index)) == 0.0);
                    if chosen.is_none() && counts {
                        chosen = Some(choice);
                    }
                }
                Ok(chosen)
            }

            fn visit_unit<E: de::Error>(self) -> Result<Option<T>, E> {
                Ok(None)
            }
        }

        deserializer.deserialize_any(Choices(PhantomData)).map(Self)
    }
}
