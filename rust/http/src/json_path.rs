//! A path to values in JSON: `data.*.score`.

use std::fmt;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::raw_json::{each, field};

/// Path to one or more values in JSON: names and numbers with dots between them, `*` for each of a
/// list, `-1` for its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath(Vec<String>);

impl JsonPath {
    /// `None` if a part is empty.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<String> = text.split('.').map(str::to_owned).collect();
        parts.iter().all(|part| !part.is_empty()).then_some(Self(parts))
    }

    /// Takes the values there out of JSON that is not built; false if the path leads nowhere.
    pub fn walk<'a>(&self, json: &'a RawValue, take: &mut dyn FnMut(&'a RawValue)) -> bool {
        walk(&self.0, json, take)
    }

    /// The first value there.
    pub fn one<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.all(value)?.into_iter().next()
    }

    /// The values there; `None` if the path leads nowhere.
    pub fn all<'a>(&self, value: &'a Value) -> Option<Vec<&'a Value>> {
        let mut found = vec![value];
        for part in &self.0 {
            let mut next = Vec::with_capacity(found.len());
            for value in found {
                match (part.as_str(), value) {
                    ("*", Value::Array(values)) => next.extend(values),
                    (name, Value::Object(fields)) => next.push(fields.get(name)?),
                    (index, Value::Array(values)) => next.push(values.get(place(index, values.len())?)?),
                    _ => return None,
                }
            }
            found = next;
        }
        Some(found)
    }
}

fn walk<'a>(parts: &[String], value: &'a RawValue, take: &mut dyn FnMut(&'a RawValue)) -> bool {
    let Some((part, rest)) = parts.split_first() else {
        take(value);
        return true;
    };
    match value.get().as_bytes().first() {
        Some(b'[') if part == "*" => {
            let mut all = true;
            each(value, |inner| all &= walk(rest, inner, take)) && all
        }
        Some(b'[') => {
            let mut count = 0;
            each(value, |_| count += 1);
            let Some(place) = place(part, count) else { return false };
            let (mut at, mut found) = (0, None);
            each(value, |inner| {
                if at == place {
                    found = Some(inner);
                }
                at += 1;
            });
            found.is_some_and(|inner| walk(rest, inner, take))
        }
        Some(b'{') => field(value, part).is_some_and(|inner| walk(rest, inner, take)),
        _ => false,
    }
}

/// The place in a list of this length that a part names.
fn place(part: &str, length: usize) -> Option<usize> {
    match part.strip_prefix('-') {
        Some(from_end) => length.checked_sub(from_end.parse().ok().filter(|from_end| *from_end > 0)?),
        None => part.parse().ok(),
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.0.join("."))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_leads_to_fields_places_and_all_of_a_list() {
        let value = json!({"data": [{"probs": [0.1, 0.9]}, {"probs": [0.8, 0.2]}]});
        let path = |text| JsonPath::parse(text).unwrap();
        assert_eq!(path("data.*.probs.1").all(&value), Some(vec![&json!(0.9), &json!(0.2)]));
        assert_eq!(path("data.0.probs.0").one(&value), Some(&json!(0.1)));
        assert_eq!(path("data.-1.probs.0").one(&value), Some(&json!(0.8)));
        assert_eq!(path("data.-3").one(&value), None);
        assert_eq!(path("data.2").all(&value), None);
        assert_eq!(path("data.0.*").all(&value), None, "`*` is for lists");
        let text = value.to_string();
        let raw: &RawValue = serde_json::from_str(&text).unwrap();
        for text in
            ["data.*.probs.1", "data.0.probs.0", "data.-1.probs.0", "data.-3", "data.2", "data.0.*", "data", "x"]
        {
            let mut found = Vec::new();
            let all = path(text).walk(raw, &mut |value| found.push(value.get().to_owned()));
            let built =
                path(text).all(&value).map(|values| values.into_iter().map(Value::to_string).collect::<Vec<_>>());
            assert_eq!(all.then_some(found), built, "{text}");
        }
        assert_eq!(JsonPath::parse("a..b"), None);
        assert_eq!(path("a.b").to_string(), "\"a.b\"");
    }
}
