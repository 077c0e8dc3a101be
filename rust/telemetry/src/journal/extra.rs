//! Records and reports of a sample's call, as one JSON object.
//!
//! - A call on several samples records lists with one value per sample, which are split; any other
//!   value belongs to each sample.
//! - The text of a judge (`answer`) is a separate column.

use std::collections::BTreeMap;
use std::ops::Range;

use guerdon_core::batch::{Batch, Record};
use guerdon_core::function::FunctionId;
use guerdon_core::report::Extra;
use serde_json::{Map, Value};

/// The name under which judges report their text.
const ANSWER: &str = "answer";

/// Extra values of one sample.
#[derive(Default)]
pub(crate) struct SampleExtra {
    pub fields: Map<String, Value>,
    pub answer: Option<String>,
}

/// Returns the records and reports of one function, for those of the samples that have any.
pub(crate) fn extras(batch: &Batch, function: FunctionId, samples: &Range<usize>) -> BTreeMap<usize, SampleExtra> {
    let mut found: BTreeMap<usize, SampleExtra> = BTreeMap::new();
    let records = batch.records_in(function, samples);
    let span = batch.functions()[function].span(batch.samples(), batch.group_size()).max(1);
    for record in records {
        let places: Vec<usize> = if record.gathered.is_empty() {
            (record.first..record.first + span).collect()
        } else {
            record.gathered.clone()
        };
        for (name, value, whose) in items(&record) {
            // The fields of a dict are those of the call's first sample.
            let places = if whose == ValueScope::First { &places[..1] } else { &places[..] };
            let value = if whose == ValueScope::First { Value::Array(vec![value]) } else { value };
            spread(places, samples, value, |sample, value| {
                found.entry(sample).or_default().fields.insert(name.clone(), value);
            });
        }
    }
    for (sample, (name, value)) in batch.extra_in(function, samples) {
        let of = found.entry(sample).or_default();
        if name == ANSWER {
            of.answer = match value {
                Extra::None => None,
                Extra::Text(text) => Some(text),
                // Votes: several.
                other => Some(json(other).to_string()),
            };
        } else {
            of.fields.insert(name.into_owned(), json(value));
        }
    }
    found
}

/// Calls `give` with the value of each sample.
fn spread(places: &[usize], samples: &Range<usize>, value: Value, mut give: impl FnMut(usize, Value)) {
    match value {
        Value::Array(values) if values.len() == places.len() => {
            for (place, value) in places.iter().zip(values).filter(|(place, _)| samples.contains(place)) {
                give(*place, value);
            }
        }
        value => places.iter().filter(|place| samples.contains(place)).for_each(|place| give(*place, value.clone())),
    }
}

/// The samples that a recorded value belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueScope {
    /// The call's first sample.
    First,
    /// Each sample: one value per sample, or the same value for all.
    Each,
}

/// The names and values of a record: `[["metric", name, value], ["fields", {…}], [kind, name,
/// value], ["member", name, record], ["votes", records], …]`.
fn items(record: &Record) -> Vec<(String, Value, ValueScope)> {
    let Ok(items) = serde_json::from_slice::<Vec<Value>>(&record.json) else {
        // A number that JSON has no form for, or a lone surrogate: kept as it was recorded.
        let text = String::from_utf8_lossy(&record.json).into_owned();
        return vec![("recorded".to_owned(), Value::String(text), ValueScope::Each)];
    };
    let mut named = Vec::new();
    add_items("", items, &mut named);
    named
}

/// Adds the names and values of a record; fields have the names of their members before them.
fn add_items(path: &str, items: Vec<Value>, named: &mut Vec<(String, Value, ValueScope)>) {
    for item in items {
        let Value::Array(item) = item else { continue };
        let mut item = item.into_iter();
        match (item.next(), item.next(), item.next()) {
            (Some(_), Some(Value::Array(records)), None) => add_votes(path, records, named),
            (Some(_), Some(Value::Object(fields)), None) => {
                named.extend(
                    fields.into_iter().map(|(name, value)| (format!("{path}{name}"), value, ValueScope::First)),
                );
            }
            (Some(Value::String(kind)), Some(Value::String(member)), Some(Value::Array(record)))
                if kind == "member" =>
            {
                add_items(&format!("{path}{member}/"), record, named);
            }
            (Some(_), Some(Value::String(name)), Some(value)) => named.push((name, value, ValueScope::Each)),
            _ => {}
        }
    }
}

/// Adds the values of several records, in a list for each name.
fn add_votes(path: &str, records: Vec<Value>, named: &mut Vec<(String, Value, ValueScope)>) {
    let mut votes = Vec::new();
    for record in records {
        if let Value::Array(record) = record {
            add_items(path, record, &mut votes);
        }
    }
    let mut lists: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (name, value, _) in votes {
        lists.entry(name).or_default().push(value);
    }
    named.extend(lists.into_iter().map(|(name, values)| (name, Value::Array(values), ValueScope::First)));
}

fn json(extra: Extra) -> Value {
    match extra {
        Extra::None => Value::Null,
        Extra::Number(number) => number.into(),
        Extra::Text(text) => Value::String(text),
        Extra::List(values) => Value::Array(values.into_iter().map(json).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(json: &str) -> Record {
        Record { first: 2, gathered: Vec::new(), json: json.as_bytes().to_vec() }
    }

    #[test]
    fn fields_columns_and_metrics_are_named_values() {
        let record =
            record(r#"[["fields", {"a": 1, "b": null}], ["extra", "gold", ["x", "y"]], ["metric", "m", 0.5]]"#);
        let expected = [("a", "1"), ("b", "null"), ("gold", r#"["x","y"]"#), ("m", "0.5")];
        let found = items(&record).into_iter();
        let found: Vec<(String, String)> = found.map(|(name, value, _)| (name, value.to_string())).collect();
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn fields_of_members_have_their_names() {
        let found = items(&record(r#"[["member", "a", [["fields", {"b": 1}], ["metric", "m", 2]]]]"#));
        let found: Vec<(String, String)> =
            found.into_iter().map(|(name, value, _)| (name, value.to_string())).collect();
        assert_eq!(found, [("a/b", "1"), ("m", "2")].map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn other_records_than_json_are_kept_as_text() {
        let found = items(&record(r#"[["metric", "m", NaN]]"#));
        let text = Value::String(r#"[["metric", "m", NaN]]"#.to_owned());
        assert_eq!(found, [("recorded".to_owned(), text, ValueScope::Each)]);
    }

    #[test]
    fn lists_of_a_call_are_taken_apart() {
        let given = |value: Value| {
            let mut given = Vec::new();
            spread(&[2, 3], &(3..4), value, |sample, value| given.push((sample, value.to_string())));
            given
        };
        assert_eq!(given(serde_json::json!(["x", "y"])), [(3, r#""y""#.to_owned())]);
        assert_eq!(given(serde_json::json!(["x"])), [(3, r#"["x"]"#.to_owned())]);
        assert_eq!(given(serde_json::json!(7)), [(3, "7".to_owned())]);
    }
}
