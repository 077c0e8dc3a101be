//! Reads the scores of a request's samples out of the body of its response.
//!
//! - There is one score a sample, in order, or all of it is an error: a score never
//!   goes to another sample.
//! - `null` abstains; anything else that is not a number is an error that shows it: of
//!   its sample alone, where there are others.

use guerdon_core::outcome::Cell;
use serde_json::Value;

use crate::json_path::JsonPath;
use crate::quote::quoted;
use crate::score_parser::{self, ScoreParser};

/// Which endpoint of an OpenAI-compatible server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Chat,
    Completions,
}

/// How a response is read.
#[derive(Clone, Debug)]
pub enum ResponseParser {
    /// A judge's answer.
    Judge { api: Api, parser: ScoreParser },
    /// A reward service's numbers, at the path; without one in the usual fields.
    Rewards { path: Option<JsonPath> },
}

/// What a response held.
#[derive(Debug)]
pub struct Scores {
    /// One a sample.
    pub cells: Vec<Cell>,
    /// Of the whole request, where the server says.
    pub tokens: Option<f64>,
}

/// Fields in which reward services return their numbers.
const USUAL: [&str; 4] = ["rewards", "scores", "reward", "score"];

impl ResponseParser {
    /// The scores of `samples` samples; `Err` says what is wrong.
    pub fn read(&self, body: &[u8], samples: usize) -> Result<Scores, String> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| format!("invalid JSON ({error}): {}", quoted(&String::from_utf8_lossy(body))))?;
        let cells = match self {
            Self::Judge { api, parser } => vec![judgment(*api, parser, &value)?],
            Self::Rewards { path } => rewards(path.as_ref(), &value, samples)?,
        };
        if cells.len() != samples {
            return Err(format!("{} scores for {samples} samples in {}", cells.len(), quoted(&value.to_string())));
        }
        let tokens = value.pointer("/usage/total_tokens").and_then(Value::as_f64);
        Ok(Scores { cells, tokens })
    }
}

fn judgment(api: Api, parser: &ScoreParser, value: &Value) -> Result<Cell, String> {
    let choice = value
        .pointer("/choices/0")
        .ok_or_else(|| format!("no choices in the answer {}", quoted(&value.to_string())))?;
    if matches!(parser, ScoreParser::LogProb { .. })
        && let Some(most_likely) = most_likely(api, choice)
    {
        return parser.read_logprobs(&most_likely);
    }
    let at = match api {
        Api::Chat => "/message/content",
        Api::Completions => "/text",
    };
    match choice.pointer(at) {
        Some(Value::String(text)) => parser.read(text, was_cut(choice, value)),
        _ => {
            let refusal = choice.pointer("/message/refusal").and_then(Value::as_str);
            Err(refusal.map_or_else(
                || format!("no text in the answer {}", quoted(&choice.to_string())),
                |refusal| format!("the judge refused: {}", quoted(refusal)),
            ))
        }
    }
}

/// Whether the answer was truncated. One of a single token was meant to end there.
fn was_cut(choice: &Value, value: &Value) -> bool {
    let single = value.pointer("/usage/completion_tokens").and_then(Value::as_u64) == Some(1);
    choice.get("finish_reason").and_then(Value::as_str) == Some("length") && !single
}

/// The most likely first tokens of an answer, with their log-probabilities.
fn most_likely(api: Api, choice: &Value) -> Option<Vec<(&str, f64)>> {
    match api {
        Api::Chat => {
            fn pair(one: &Value) -> Option<(&str, f64)> {
                Some((one.get("token")?.as_str()?, logprob(one.get("logprob"))))
            }
            let listed = choice.pointer("/logprobs/content/0/top_logprobs")?.as_array()?;
            Some(listed.iter().filter_map(pair).collect())
        }
        Api::Completions => {
            let listed = choice.pointer("/logprobs/top_logprobs/0")?.as_object()?;
            Some(listed.iter().map(|(token, given)| (token.as_str(), logprob(Some(given)))).collect())
        }
    }
}

/// NaN for anything else.
fn logprob(given: Option<&Value>) -> f64 {
    given.and_then(Value::as_f64).unwrap_or(f64::NAN)
}

fn rewards(path: Option<&JsonPath>, value: &Value, samples: usize) -> Result<Vec<Cell>, String> {
    let found = match path {
        Some(path) => path.all(value).ok_or_else(|| format!("no field {path} in {}", quoted(&value.to_string())))?,
        None => match value {
            Value::Object(fields) => {
                let field = USUAL.iter().find_map(|name| fields.get(*name));
                vec![field.ok_or_else(|| format!("none of {USUAL:?} in {}", quoted(&value.to_string())))?]
            }
            other => vec![other],
        },
    };
    // A list stands for its values, unless the path has selected each of them.
    let values: Vec<&Value> = match found[..] {
        [Value::Array(values)] => values.iter().collect(),
        _ => found,
    };
    if values.len() != samples {
        return Err(format!("{} scores for {samples} samples in {}", values.len(), quoted(&value.to_string())));
    }
    if samples == 1 {
        return values.into_iter().map(one_reward).collect();
    }
    Ok(values.into_iter().map(|value| one_reward(value).unwrap_or_else(Cell::Invalid)).collect())
}

/// A score, or an object that holds one.
fn one_reward(value: &Value) -> Result<Cell, String> {
    match value {
        Value::Object(fields) => {
            let field = ["reward", "score"].iter().find_map(|name| fields.get(*name));
            score_parser::score(field.ok_or_else(|| format!("no score in {}", quoted(&value.to_string())))?)
        }
        other => score_parser::score(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(answer: &ResponseParser, body: &str, samples: usize) -> Result<Vec<f64>, String> {
        let number = |cell| match cell {
            Cell::Value(value) => value,
            _ => -1.0,
        };
        answer.read(body.as_bytes(), samples).map(|scores| scores.cells.into_iter().map(number).collect())
    }

    #[test]
    fn the_usual_shapes_of_reward_services() {
        let usual = ResponseParser::Rewards { path: None };
        assert_eq!(values(&usual, r#"{"rewards": [1, null, 0.5]}"#, 3), Ok(vec![1.0, -1.0, 0.5]));
        assert_eq!(values(&usual, r#"{"score": 0.25, "comment": "x"}"#, 1), Ok(vec![0.25]));
        assert_eq!(values(&usual, "[1, 2]", 2), Ok(vec![1.0, 2.0]));
        assert_eq!(values(&usual, "0.5", 1), Ok(vec![0.5]));
        assert_eq!(values(&usual, r#"[{"score": 1}, {"reward": true}]"#, 2), Ok(vec![1.0, 1.0]));
        let error = values(&usual, r#"{"rewards": [1, 2]}"#, 3).unwrap_err();
        assert!(error.contains("2 scores for 3 samples"), "{error}");
        let error = values(&usual, r#"{"rewards": ["high"]}"#, 1).unwrap_err();
        assert!(error.contains("\"high\", which is not a number"), "{error}");
        let scores = usual.read(br#"{"rewards": [1, "high", null]}"#, 3).unwrap();
        let [Cell::Value(1.0), Cell::Invalid(why), Cell::Abstained] = &scores.cells[..] else { panic!("{scores:?}") };
        assert!(why.contains("\"high\", which is not a number"), "{why}");
        assert!(values(&usual, r#"{"value": 1}"#, 1).unwrap_err().contains("none of"));
        assert!(values(&usual, "{\"rewards\": [1", 1).unwrap_err().contains("invalid JSON"));
    }

    #[test]
    fn a_path_says_where_the_numbers_are() {
        let each = ResponseParser::Rewards { path: JsonPath::parse("data.*.probs.1") };
        let body = r#"{"data": [{"probs": [0.1, 0.9]}, {"probs": [0.8, 0.2]}]}"#;
        assert_eq!(values(&each, body, 2), Ok(vec![0.9, 0.2]));
        let list = ResponseParser::Rewards { path: JsonPath::parse("out.values") };
        assert_eq!(values(&list, r#"{"out": {"values": [3]}}"#, 1), Ok(vec![3.0]));
        assert!(values(&list, r#"{"out": {}}"#, 1).unwrap_err().contains("\"out.values\""));
    }

    #[test]
    fn judges_answer_in_words_or_log_probabilities() {
        let chat = ResponseParser::Judge { api: Api::Chat, parser: ScoreParser::Number };
        let body = r#"{"choices": [{"message": {"content": "Score: 7"}}], "usage": {"total_tokens": 12}}"#;
        assert_eq!(values(&chat, body, 1), Ok(vec![7.0]));
        assert_eq!(chat.read(body.as_bytes(), 1).unwrap().tokens, Some(12.0));
        let text = ResponseParser::Judge { api: Api::Completions, parser: ScoreParser::Number };
        assert_eq!(values(&text, r#"{"choices": [{"text": " 3"}]}"#, 1), Ok(vec![3.0]));
        let refused = r#"{"choices": [{"message": {"content": null, "refusal": "I can't"}}]}"#;
        assert!(values(&chat, refused, 1).unwrap_err().contains("refused: \"I can't\""));
        assert!(values(&chat, r#"{"error": "x"}"#, 1).unwrap_err().contains("no choices"));
        let parse = || ScoreParser::LogProb { token: "Yes".to_owned(), others: Vec::new() };
        let soft = ResponseParser::Judge { api: Api::Chat, parser: parse() };
        let body = r#"{"choices": [{"message": {"content": "Yes"}, "logprobs": {"content": [{"top_logprobs":
            [{"token": "Yes", "logprob": 0.0}]}]}}]}"#;
        assert_eq!(values(&soft, body, 1), Ok(vec![1.0]));
        let soft = ResponseParser::Judge { api: Api::Completions, parser: parse() };
        let body = r#"{"choices": [{"text": "Yes", "logprobs": {"top_logprobs": [{"Yes": 0.0}]}}]}"#;
        assert_eq!(values(&soft, body, 1), Ok(vec![1.0]));
        for unknown in ["null", "\"-inf\"", "[]"] {
            let body = format!(
                r#"{{"choices": [{{"text": "", "logprobs": {{"top_logprobs": [{{"Yes": {unknown}, "No": -1}}]}}}}]}}"#
            );
            let others = vec!["No".to_owned()];
            let parser = ScoreParser::LogProb { token: "Yes".to_owned(), others };
            let soft = ResponseParser::Judge { api: Api::Completions, parser };
            assert!(values(&soft, &body, 1).unwrap_err().contains("not a log-probability"), "never a guess, never 0");
        }
        let without = r#"{"choices": [{"text": "Yes", "logprobs": null}]}"#;
        assert!(values(&soft, without, 1).unwrap_err().contains("does the server support logprobs"));
    }
}
