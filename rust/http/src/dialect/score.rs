//! Answers of reward models behind `/score`, `/classify` and `/pooling`, as vLLM and SGLang have
//! them.
//!
//! One sample has one number, or all of it is an error: which of several counts is for the path to
//! say.

use serde_json::value::RawValue;

use crate::json_path::JsonPath;
use crate::quote::quoted;
use crate::raw_json::{each, field};

/// Fields of the answer, or of the sample in it, that hold its numbers.
const HOLD: [&str; 7] = ["data", "score", "scores", "probs", "embedding", "reward", "rewards"];
/// Deepest nesting of lists and objects: `{"data": [{"data": [[0.5]]}]}`.
const DEPTH: usize = 6;

/// Returns the score in the answer.
pub fn find<'a>(path: Option<&JsonPath>, answer: &'a RawValue) -> Result<&'a RawValue, String> {
    let (mut first, mut count) = (None, 0_usize);
    let mut take = |value: &'a RawValue| {
        count += 1;
        first = first.or(Some(value));
    };
    match path {
        Some(path) if path.walk(answer, &mut take) => {}
        Some(path) => return Err(format!("no field {path} in {}", quoted(answer.get()))),
        None => numbers(answer, DEPTH, &mut take),
    }
    match (first, count) {
        (Some(score), 1) => Ok(score),
        (_, 0) => Err(format!("no score in {}", quoted(answer.get()))),
        _ => Err(format!(
            "{count} numbers in {}: name the one that is the score, as in parse=parse.json(\"data.0.probs.1\")",
            quoted(answer.get())
        )),
    }
}

/// Takes all values at the places where servers put numbers.
fn numbers<'a>(value: &'a RawValue, depth: usize, take: &mut dyn FnMut(&'a RawValue)) {
    match value.get().as_bytes().first() {
        _ if depth == 0 => take(value),
        Some(b'[') => {
            each(value, |inner| numbers(inner, depth - 1, take));
        }
        Some(b'{') => {
            if let Some(inner) = HOLD.iter().find_map(|name| field(value, name)) {
                numbers(inner, depth - 1, take);
            }
        }
        _ => take(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: Option<&str>, answer: &str) -> Result<String, String> {
        let answer: &RawValue = serde_json::from_str(answer).unwrap();
        let path = path.map(|path| JsonPath::parse(path).unwrap());
        find(path.as_ref(), answer).map(|score| score.get().to_owned())
    }

    #[test]
    fn the_shapes_of_servers() {
        for answer in [
            r#"{"id": "score-1", "data": [{"index": 0, "object": "score", "score": 0.5}], "usage": {"prompt_tokens": 3}}"#,
            r#"{"data": [{"index": 0, "label": "Default", "probs": [0.5], "num_classes": 1}]}"#,
            r#"{"data": [{"index": 0, "object": "pooling", "data": [0.5]}]}"#,
            r#"{"data": [{"index": 0, "object": "pooling", "data": [[0.5]]}]}"#,
            r#"[{"embedding": [0.5], "meta_info": {"prompt_tokens": 3}}]"#,
            r#"{"scores": [[0.5]], "object": "scoring"}"#,
        ] {
            assert_eq!(found(None, answer).as_deref(), Ok("0.5"), "{answer}");
        }
    }

    #[test]
    fn one_of_several_must_be_named() {
        let classes = r#"{"data": [{"probs": [0.25, 0.75]}]}"#;
        let error = found(None, classes).unwrap_err();
        assert!(error.starts_with("2 numbers in") && error.contains("parse.json("), "{error}");
        assert_eq!(found(Some("data.0.probs.1"), classes).as_deref(), Ok("0.75"));
        let steps = r#"{"data": [{"data": [[0.1], [0.2], [0.9]]}]}"#;
        assert!(found(None, steps).unwrap_err().starts_with("3 numbers"));
        assert_eq!(found(Some("data.0.data.-1.0"), steps).as_deref(), Ok("0.9"));
        assert!(found(Some("data.0.logits"), classes).unwrap_err().starts_with("no field \"data.0.logits\""));
        assert!(found(None, r#"{"error": "x"}"#).unwrap_err().starts_with("no score in"));
    }
}
