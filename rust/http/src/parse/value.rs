//! The score that a JSON value is.

use guerdon_core::outcome::Cell;
use serde_json::Value;

use super::number;
use super::range::{Range, fitting};
use crate::quote::quoted;

/// The score of a reward service: a number, a boolean, a text that is a number, or `null`.
pub fn score(value: &Value) -> Result<Cell, String> {
    let cell = match value {
        Value::String(text) => text.trim().parse().map(Cell::Value).map_err(|_| not_a_number(value)),
        other => plain(other),
    };
    cell.and_then(|cell| fitting(cell, None))
}

/// The score in a judge's JSON, where a text may be "8/10", and `true` is 1 in a range from 0 to 1.
pub fn judged(value: &Value, range: Option<Range>) -> Result<Cell, String> {
    let zero_to_one = Range { low: 0.0, high: 1.0 };
    if value.is_boolean() && range.is_some_and(|range| range != zero_to_one) {
        return Err(not_a_number(value));
    }
    let Value::String(text) = value else { return plain(value) };
    if let Ok(number) = text.trim().parse() {
        return Ok(Cell::Value(number));
    }
    number::plain(text, range).map(Cell::Value).ok_or_else(|| not_a_number(value))
}

fn plain(value: &Value) -> Result<Cell, String> {
    match value {
        Value::Null => Ok(Cell::Abstained),
        Value::Bool(yes) => Ok(Cell::Value(f64::from(u8::from(*yes)))),
        Value::Number(number) => Ok(Cell::Value(number.as_f64().unwrap_or(f64::NAN))),
        Value::String(_) | Value::Array(_) | Value::Object(_) => Err(not_a_number(value)),
    }
}

fn not_a_number(value: &Value) -> String {
    let shown = value.as_str().map_or_else(|| quoted(&value.to_string()), quoted);
    format!("{shown}, which is not a number")
}
