//! Pieces of JSON that are parsed once their use is known.
//!
//! They are slices of the body: what nobody asks for is neither copied nor built.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
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

/// Takes the values of these names in each object of a list, if there is one; other values of it
/// are passed over.
pub fn each_object<'a, const N: usize>(
    given: Raw<'a>,
    names: [&str; N],
    mut take: impl FnMut([Raw<'a>; N]) -> serde_json::Result<()>,
) -> serde_json::Result<()> {
    let mut result = Ok(());
    if let Some(given) = given {
        each(given, |value| {
            if result.is_ok() && value.get().starts_with('{') {
                result = object(Some(value), names).and_then(&mut take);
            }
        });
    }
    result
}

/// The first value of a list, of which there may be more.
pub fn first<'a>(given: Raw<'a>) -> Raw<'a> {
    let mut found = None;
    each(given?, |value| {
        found.get_or_insert(value);
    });
    found
}

/// Takes the names and values of an object in order; no list of them is made.
pub fn each_field<'a>(json: &'a [u8], take: impl FnMut(&str, &'a RawValue)) -> serde_json::Result<()> {
    struct EachField<F>(F);

    impl<'de, F: FnMut(&str, &'de RawValue)> Visitor<'de> for EachField<F> {
        type Value = ();

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
            while let Some((name, value)) = fields.next_entry::<String, _>()? {
                (self.0)(&name, value);
            }
            Ok(())
        }
    }

    let mut json = serde_json::Deserializer::from_slice(json);
    json.deserialize_map(EachField(take))?;
    json.end()
}

/// The values of these names in an object, in this order; an error for a name with two different
/// values. Nothing is kept of other values, which need not even be UTF-8.
fn values<'a, const N: usize>(json: &'a [u8], names: [&str; N]) -> serde_json::Result<[Raw<'a>; N]> {
    struct Place<'n>(&'n [&'n str]);

    impl<'de> DeserializeSeed<'de> for Place<'_> {
        type Value = Option<usize>;

        fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<Option<usize>, D::Error> {
            name.deserialize_str(self)
        }
    }

    impl Visitor<'_> for Place<'_> {
        type Value = Option<usize>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a name")
        }

        fn visit_str<E: de::Error>(self, name: &str) -> Result<Option<usize>, E> {
            Ok(self.0.iter().position(|known| *known == name))
        }
    }

    struct Values<'n, const N: usize>([&'n str; N]);

    impl<'de, const N: usize> Visitor<'de> for Values<'_, N> {
        type Value = [Raw<'de>; N];

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found: Self::Value = [None; N];
            while let Some(place) = map.next_key_seed(Place(&self.0))? {
                let Some(place) = place else {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                };
                let value: &RawValue = map.next_value()?;
                if found[place].is_some_and(|other| other.get() != value.get()) {
                    return Err(de::Error::custom(format_args!("{:?} twice, with different values", self.0[place])));
                }
                found[place] = Some(value);
            }
            Ok(found)
        }
    }

    let mut json = serde_json::Deserializer::from_slice(json);
    let found = json.deserialize_map(Values(names))?;
    json.end()?;
    Ok(found)
}

/// The values of these names in an object, in this order; those that are null are missing.
pub fn fields<'a, const N: usize>(json: &'a [u8], names: [&str; N]) -> serde_json::Result<[Raw<'a>; N]> {
    values(json, names).map(|found| found.map(|value| value.filter(|value| value.get() != "null")))
}

/// The same of an object in an object, which may be missing.
pub fn object<'a, const N: usize>(given: Raw<'a>, names: [&str; N]) -> serde_json::Result<[Raw<'a>; N]> {
    given.map_or(Ok([None; N]), |given| fields(given.get().as_bytes(), names))
}

/// The same where nothing is decided by it: all are missing where it is no such object.
pub fn within<'a, const N: usize>(given: Raw<'a>, names: [&str; N]) -> [Raw<'a>; N] {
    object(given, names).unwrap_or([None; N])
}

/// The value of a name in an object, which may be null; none for a name with two different values.
pub fn field<'a>(given: &'a RawValue, name: &str) -> Raw<'a> {
    values(given.get().as_bytes(), [name]).ok().and_then(|[value]| value)
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
