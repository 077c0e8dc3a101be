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
    match path {
        "/rewards" => {
            let texts = body.get("completions").or_else(|| body.get("query")).and_then(Value::as_array);
            let scores: Vec<Value> = texts.map_or_else(Vec::new, |texts| texts.iter().map(number).collect());
            json!({ "rewards": scores })
        }
        "/score" => json!({ "score": body.get("completion").map_or(Value::Null, number), "comment": "seen" }),
        _ => judgment(path, body, text),
    }
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

fn judgment(path: &str, body: &Value, text: &str) -> Value {
    let says =
        asked(text, "says").map_or_else(|| format!("Score: {}", asked(text, "score").unwrap_or("5")), str::to_owned);
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14 });
    let yes: f64 = asked(text, "yes").and_then(|share| share.parse().ok()).unwrap_or(0.5);
    let (yes, no) = (yes.max(1e-9).ln(), (1.0 - yes).max(1e-9).ln());
    if path.ends_with("/chat/completions") {
        let asked_for = body.get("logprobs") == Some(&Value::Bool(true));
        let listed = json!([{ "token": "Yes", "logprob": yes }, { "token": "No", "logprob": no }]);
        let logprobs = if asked_for {
            json!({ "content": [{ "token": "Yes", "logprob": yes, "top_logprobs": listed }] })
        } else {
            Value::Null
        };
        let message = json!({ "role": "assistant", "content": says });
        json!({ "choices": [{ "index": 0, "message": message, "logprobs": logprobs, "finish_reason": "stop" }], "usage": usage })
    } else {
        let asked_for = body.get("logprobs").is_some_and(Value::is_number);
        let logprobs = if asked_for { json!({ "top_logprobs": [{ "Yes": yes, "No": no }] }) } else { Value::Null };
        json!({ "choices": [{ "index": 0, "text": says, "logprobs": logprobs, "finish_reason": "stop" }], "usage": usage })
    }
}
