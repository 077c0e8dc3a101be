//! JSON in which a name that occurs twice in an object is an error: two people could read either.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::raw_json::{each, each_field};

/// Deepest nesting of lists and objects that is read.
const DEPTH: usize = 128;

/// The value at the beginning of a text, and how many bytes it takes.
pub fn first_value(text: &str) -> Option<(Value, usize)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let value = strict(values.next()?.ok()?, DEPTH)?;
    Some((value, values.byte_offset()))
}

/// A value without names that occur twice.
fn strict(value: &RawValue, depth: usize) -> Option<Value> {
    let inner = |value| strict(value, depth.checked_sub(1)?);
    let text = value.get();
    if text.starts_with('{') {
        let (mut found, mut whole) = (Map::new(), true);
        let read = each_field(text.as_bytes(), |name, value| {
            whole &= inner(value).is_some_and(|value| found.insert(name.to_owned(), value).is_none());
        });
        return (whole && read.is_ok()).then_some(Value::Object(found));
    }
    if text.starts_with('[') {
        let mut found = Vec::new();
        each(value, |value| found.push(inner(value)));
        return found.into_iter().collect::<Option<_>>().map(Value::Array);
    }
    serde_json::from_str(text).ok()
}
