//! Pieces of JSON that are parsed once their use is known.
//!
//! They are slices of the body: what nobody asks for is neither copied nor built.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::value::RawValue;

/// A field that may be missing, null, or of another type than expected.
pub type Raw<'a> = Option<&'a RawValue>;

/// The largest count that is believed: a thousand times the longest context there is.
const MOST_COUNTED: f64 = 1e10;

/// A string; half a surrogate pair in it is shown as U+FFFD, so that nothing beside it is lost.
pub fn text(given: Raw<'_>) -> Option<String> {
    struct Lossy;

    impl Visitor<'_> for Lossy {
        type Value = String;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a string")
        }

        fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<String, E> {
            Ok(String::from_utf8_lossy(bytes).into_owned())
        }
    }

    let given = given?.get();
    if !given.starts_with('"') {
        return None;
    }
    let whole = serde_json::from_str(given).ok();
    whole.or_else(|| serde_json::Deserializer::from_str(given).deserialize_bytes(Lossy).ok())
}

/// An object's fields. Lists are none: their places would be taken for the fields.
pub fn object<'a, T: Deserialize<'a>>(given: Raw<'a>) -> Option<T> {
    given.filter(|given| given.get().starts_with('{')).and_then(|given| serde_json::from_str(given.get()).ok())
}

/// A count: a number of at least 0. One that no server can mean (1e30) is none: it would use up
/// caps and rates for ever.
pub fn count(given: Raw<'_>) -> Option<u64> {
    let number = number(given);
    (0.0..=MOST_COUNTED).contains(&number).then_some(number as u64)
}

/// A number; NaN for anything else.
pub fn number(given: Raw<'_>) -> f64 {
    given.and_then(|given| given.get().parse().ok()).unwrap_or(f64::NAN)
}

/// The first value of a list, of which there may be more.
#[derive(Debug)]
pub struct First<T>(pub Option<T>);

impl<T> Default for First<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for First<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Of<T> {
            type Value = Option<T>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Option<T>, A::Error> {
                let first = values.next_element()?;
                while values.next_element::<IgnoredAny>()?.is_some() {}
                Ok(first)
            }

            fn visit_unit<E: de::Error>(self) -> Result<Option<T>, E> {
                Ok(None)
            }
        }

        deserializer.deserialize_any(Of(std::marker::PhantomData)).map(First)
    }
}

/// Takes the values of a list one by one, so that a long list is never there as a whole; false if
/// it is not a list.
pub fn each<'a>(given: &'a RawValue, take: impl FnMut(&'a RawValue)) -> bool {
    struct Each<F>(F);

    impl<'de, F: FnMut(&'de RawValue)> Visitor<'de> for Each<F> {
        type Value = ();

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(mut self, mut values: A) -> Result<(), A::Error> {
            while let Some(value) = values.next_element()? {
                (self.0)(value);
            }
            Ok(())
        }
    }

    serde_json::Deserializer::from_str(given.get()).deserialize_seq(Each(take)).is_ok()
}

/// The value of a name in an object; none where it is there twice and not the same.
pub fn field<'a>(given: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    struct Find<'n>(&'n str);

    impl<'de> Visitor<'de> for Find<'_> {
        type Value = Raw<'de>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Raw<'de>, A::Error> {
            let mut found = None;
            while let Some(name) = fields.next_key::<Cow<'de, str>>()? {
                if name == self.0 {
                    let value: &RawValue = fields.next_value()?;
                    if found.is_some_and(|other: &RawValue| other.get() != value.get()) {
                        return Err(de::Error::custom("a name twice"));
                    }
                    found = Some(value);
                } else {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
            Ok(found)
        }
    }

    serde_json::Deserializer::from_str(given.get()).deserialize_map(Find(name)).ok()?
}

/// The values of a list that are read as `T`; others are left out.
pub fn each_as<'a, T: Deserialize<'a>>(given: Raw<'a>, mut take: impl FnMut(T)) {
    if let Some(given) = given {
        each(given, |value| {
            if let Ok(value) = serde_json::from_str(value.get()) {
                take(value);
            }
        });
    }
}

/// Adds a piece of text.
pub fn push(all: &mut Option<String>, piece: Option<String>) {
    if let Some(piece) = piece {
        match all {
            Some(all) => all.push_str(&piece),
            None => *all = Some(piece),
        }
    }
}
