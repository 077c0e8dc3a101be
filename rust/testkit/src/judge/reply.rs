//! The response to a request without a fault.

use serde_json::{Value, json};

use super::fault::asked;

/// Returns the texts of a request, joined, which are searched for faults and scores.
pub fn text_of(body: &Value) -> String {
    fn gather(value: &Value, out: &mut String) {
        match value {
            Value::String(text) => {
                out.push_str(text);
                out.push('\n');
            }
            Value::Array(values) => values.iter().for_each(|value| gather(value, out)),
            Value::Object(fields) => fields.values().for_each(|value| gather(value, out)),
            _ => {}
        }
    }
    let mut out = String::new();
    gather(body, &mut out);
    out
}

/// The answer to a request to `path`, as JSON.
pub fn of(path: &str, body: &Value, text: &str) -> Value {
    if path == "/rewards" {
        let texts = body.get("completions").or_else(|| body.get("query")).and_then(Value::as_array);
        let scores: Vec<Value> = texts.map_or_else(Vec::new, |texts| texts.iter().map(number).collect());
        return json!({ "rewards": scores });
    }
    let says =
        asked(text, "says").map_or_else(|| format!("Score: {}", asked(text, "score").unwrap_or("5")), str::to_owned);
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14 });
    let message = json!({ "role": "assistant", "content": says });
    json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }], "usage": usage })
}

/// Returns the score that a text chooses, or its length in characters.
fn number(value: &Value) -> Value {
    let text = value.as_str().unwrap_or_default();
    match asked(text, "score") {
        Some("null") => Value::Null,
        Some(number) => number.parse::<f64>().map_or_else(|_| json!(number), |number| json!(number)),
        None => json!(text.chars().count()),
    }
}
