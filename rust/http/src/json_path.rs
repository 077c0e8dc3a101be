//! A path to values in JSON: `data.*.score`.

use std::fmt;

use serde_json::Value;

/// Where one or more values stand in JSON: names and numbers with dots between them, `*` for each
/// of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath(Vec<String>);

impl JsonPath {
    /// `None` if a part is empty.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<String> = text.split('.').map(str::to_owned).collect();
        parts.iter().all(|part| !part.is_empty()).then_some(Self(parts))
    }

    /// The first value there.
    pub fn one<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.all(value)?.into_iter().next()
    }

    /// The values there; `None` if the way ends before.
    pub fn all<'a>(&self, value: &'a Value) -> Option<Vec<&'a Value>> {
        let mut found = vec![value];
        for part in &self.0 {
            let mut next = Vec::with_capacity(found.len());
            for value in found {
                match (part.as_str(), value) {
                    ("*", Value::Array(values)) => next.extend(values),
                    (name, Value::Object(fields)) => next.push(fields.get(name)?),
                    (index, Value::Array(values)) => next.push(values.get(index.parse::<usize>().ok()?)?),
                    _ => return None,
                }
            }
            found = next;
        }
        Some(found)
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
        assert_eq!(path("data.2").all(&value), None);
        assert_eq!(path("data.0.*").all(&value), None, "`*` is for lists");
        assert_eq!(JsonPath::parse("a..b"), None);
        assert_eq!(path("a.b").to_string(), "\"a.b\"");
    }
}
