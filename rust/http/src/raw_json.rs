//! Pieces of JSON that are parsed once their use is known.
//!
//! They are slices of the body: what nobody asks for is neither copied nor built.

use std::fmt::{self, Debug};
use std::marker::PhantomData;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::de::Read;
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

/// A count: a number of at least 0. A number that no server can mean (1e30) is not one: it would
/// use up caps and rates for ever.
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

/// Takes the values of some names out of an object, in this order, and reads the value of one more
/// name by a seed: in one walk. Nothing is kept of other values, which need not even be UTF-8. A
/// name with two different values is an error; the seed's name is one where it reads two different
/// values.
#[derive(Clone, Copy)]
pub struct Names<'n, const N: usize, S> {
    names: [&'n str; N],
    inner: Option<(&'n str, S)>,
}

/// Values in the order of their names, and the value that the seed read, unless it is null.
pub type Taken<'a, const N: usize, T> = ([Raw<'a>; N], Option<T>);

impl<'n, const N: usize> Names<'n, N, PhantomData<IgnoredAny>> {
    pub const fn of(names: [&'n str; N]) -> Self {
        Self { names, inner: None }
    }

    pub const fn with<S>(self, name: &'n str, seed: S) -> Names<'n, N, S> {
        Names { names: self.names, inner: Some((name, seed)) }
    }
}

impl<'de, const N: usize, S: DeserializeSeed<'de, Value: Debug> + Copy> Names<'_, N, S> {
    /// Takes them out of the JSON of an object.
    pub fn read(self, json: &'de [u8]) -> serde_json::Result<Taken<'de, N, S::Value>> {
        self.take(serde_json::Deserializer::from_slice(json))
    }

    fn take<R: Read<'de>>(self, mut json: serde_json::Deserializer<R>) -> serde_json::Result<Taken<'de, N, S::Value>> {
        let found = self.deserialize(&mut json)?;
        json.end()?;
        Ok(found)
    }
}

impl<'de, const N: usize, S: DeserializeSeed<'de, Value: Debug> + Copy> DeserializeSeed<'de> for Names<'_, N, S> {
    type Value = Taken<'de, N, S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de, const N: usize, S: DeserializeSeed<'de, Value: Debug> + Copy> Visitor<'de> for Names<'_, N, S> {
    type Value = Taken<'de, N, S::Value>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let twice = |name| de::Error::custom(format_args!("{name:?} twice, with different values"));
        let mut found: [Raw<'de>; N] = [None; N];
        let mut inner = None;
        while let Some(place) = map.next_key_seed(Place(&self.names, self.inner.map(|(name, _)| name)))? {
            if let Some(place) = place.filter(|place| *place < N) {
                let value: &RawValue = map.next_value()?;
                if found[place].is_some_and(|other| other.get() != value.get()) {
                    return Err(twice(self.names[place]));
                }
                found[place] = Some(value);
            } else if let Some((name, seed)) = self.inner.filter(|_| place.is_some()) {
                let value = map.next_value_seed(Nullable(seed))?;
                // Equal values print the same JSON.
                if inner.as_ref().is_some_and(|other| format!("{other:?}") != format!("{value:?}")) {
                    return Err(twice(name));
                }
                inner = Some(value);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok((found, inner.flatten()))
    }
}

/// Finds the place of a name among others; that of the last is behind the list. The name need not
/// be UTF-8: bytes are not checked for it.
struct Place<'n>(&'n [&'n str], Option<&'n str>);

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<Option<usize>, D::Error> {
        name.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Place<'_> {
    type Value = Option<usize>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a name")
    }

    fn visit_bytes<E: de::Error>(self, name: &[u8]) -> Result<Option<usize>, E> {
        let Self(names, last) = self;
        let place = names.iter().position(|known| known.as_bytes() == name);
        Ok(place.or_else(|| last.filter(|last| last.as_bytes() == name).map(|_| names.len())))
    }
}

/// Reads a value by another seed, unless it is null.
struct Nullable<S>(S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value or null")
    }

    fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(json).map(Some)
    }
}

/// Reads the elements of a list, each by the seed, up to the first that the function takes.
#[derive(Clone, Copy)]
pub struct FirstOf<S, F>(pub S, pub F);

impl<'de, S: DeserializeSeed<'de> + Copy, T, F: FnMut(S::Value) -> Option<T>> DeserializeSeed<'de> for FirstOf<S, F> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Option<T>, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de, S: DeserializeSeed<'de> + Copy, T, F: FnMut(S::Value) -> Option<T>> Visitor<'de> for FirstOf<S, F> {
    type Value = Option<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut values: A) -> Result<Option<T>, A::Error> {
        while let Some(value) = values.next_element_seed(self.0)? {
            if let Some(found) = (self.1)(value) {
                while values.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// The values that are not null.
pub fn present<const N: usize>(found: [Raw<'_>; N]) -> [Raw<'_>; N] {
    found.map(|value| value.filter(|value| value.get() != "null"))
}

/// The values of these names in an object, in this order; those that are null are missing.
pub fn fields<'a, const N: usize>(json: &'a [u8], names: [&str; N]) -> serde_json::Result<[Raw<'a>; N]> {
    Names::of(names).read(json).map(|(found, _)| present(found))
}

/// The same of an object in an object, which may be missing.
pub fn object<'a, const N: usize>(given: Raw<'a>, names: [&str; N]) -> serde_json::Result<[Raw<'a>; N]> {
    let Some(given) = given else { return Ok([None; N]) };
    Names::of(names).take(serde_json::Deserializer::from_str(given.get())).map(|(found, _)| present(found))
}

/// The same for an optional object: all are missing if it is not an object.
pub fn within<'a, const N: usize>(given: Raw<'a>, names: [&str; N]) -> [Raw<'a>; N] {
    object(given, names).unwrap_or([None; N])
}

/// The value of a name in an object, which may be null; none for a name with two different values.
pub fn field<'a>(given: &'a RawValue, name: &str) -> Raw<'a> {
    let found = Names::of([name]).take(serde_json::Deserializer::from_str(given.get()));
    found.ok().and_then(|([value], _)| value)
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
