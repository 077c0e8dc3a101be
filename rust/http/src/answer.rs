//! Reading the scores of a request's samples out of the body of its answer.
//!
//! - A-1  There is one score a sample, in order, or the whole answer is an error: a score is never given to another sample.
//! - A-2  `null` abstains; all else that is no number is an error that shows what came: of its sample alone, where there are others.

use guerdon_core::outcome::Cell;
use serde_json::Value;

use crate::path::Path;
use crate::shown::shown;
use crate::verdict::{self, Parse};

/// Which endpoint of an OpenAI-compatible server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Chat,
    Completions,
}

/// How an answer is read.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A judge's words.
    Judge { api: Api, parse: Parse },
    /// A reward service's numbers, where the path says; without one where they usually are.
    Rewards { path: Option<Path> },
}

/// What an answer held.
#[derive(Debug)]
pub struct Scores {
    /// One a sample.
    pub cells: Vec<Cell>,
    /// Of the whole request, where the server says.
    pub tokens: Option<f64>,
}

/// Where a reward service usually puts its numbers.
const USUAL: [&str; 4] = ["rewards", "scores", "reward", "score"];

impl Answer {
    /// The scores of `samples` samples; `Err` says what is wrong.
    pub fn read(&self, body: &[u8], samples: usize) -> Result<Scores, String> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| format!("invalid JSON ({error}): {}", shown(&String::from_utf8_lossy(body))))?;
        let cells = match self {
            Self::Judge { api, parse } => vec![judgment(*api, parse, &value)?],
            Self::Rewards { path } => rewards(path.as_ref(), &value, samples)?,
        };
        if cells.len() != samples {
            return Err(format!("{} scores for {samples} samples in {}", cells.len(), shown(&value.to_string())));
        }
        let tokens = value.pointer("/usage/total_tokens").and_then(Value::as_f64);
        Ok(Scores { cells, tokens })
    }
}

fn judgment(api: Api, parse: &Parse, value: &Value) -> Result<Cell, String> {
    let choice =
        value.pointer("/choices/0").ok_or_else(|| format!("no choices in the answer {}", shown(&value.to_string())))?;
    if matches!(parse, Parse::LogProb { .. })
        && let Some(most_likely) = most_likely(api, choice)
    {
        return parse.weigh(&most_likely);
    }
    let at = match api {
        Api::Chat => "/message/content",
        Api::Completions => "/text",
    };
    match choice.pointer(at) {
        Some(Value::String(text)) => parse.read(text, was_cut(choice, value)),
        _ => {
            let refusal = choice.pointer("/message/refusal").and_then(Value::as_str);
            Err(refusal.map_or_else(
                || format!("no text in the answer {}", shown(&choice.to_string())),
                |refusal| format!("the judge refused: {}", shown(refusal)),
            ))
        }
    }
}

/// Whether the judge would have said more. One who was asked for a single token has said all of it.
fn was_cut(choice: &Value, value: &Value) -> bool {
    let single = value.pointer("/usage/completion_tokens").and_then(Value::as_u64) == Some(1);
    choice.get("finish_reason").and_then(Value::as_str) == Some("length") && !single
}

/// Tokens and log-probabilities at the first place of an answer.
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

/// NaN for what is none.
fn logprob(given: Option<&Value>) -> f64 {
    given.and_then(Value::as_f64).unwrap_or(f64::NAN)
}

fn rewards(path: Option<&Path>, value: &Value, samples: usize) -> Result<Vec<Cell>, String> {
    let found = match path {
        Some(path) => path.all(value).ok_or_else(|| format!("no field {path} in {}", shown(&value.to_string())))?,
        None => match value {
            Value::Object(fields) => {
                let field = USUAL.iter().find_map(|name| fields.get(*name));
                vec![field.ok_or_else(|| format!("none of {USUAL:?} in {}", shown(&value.to_string())))?]
            }
            other => vec![other],
        },
    };
    // A list stands for its values, unless the path has named each of them.
    let values: Vec<&Value> = match found[..] {
        [Value::Array(values)] => values.iter().collect(),
        _ => found,
    };
    if values.len() != samples {
        return Err(format!("{} scores for {samples} samples in {}", values.len(), shown(&value.to_string())));
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
            verdict::score(field.ok_or_else(|| format!("no score in {}", shown(&value.to_string())))?)
        }
        other => verdict::score(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(answer: &Answer, body: &str, samples: usize) -> Result<Vec<f64>, String> {
        let number = |cell| match cell {
            Cell::Value(value) => value,
            _ => -1.0,
        };
        answer.read(body.as_bytes(), samples).map(|scores| scores.cells.into_iter().map(number).collect())
    }

    #[test]
    fn a1_the_usual_shapes_of_reward_services() {
        let usual = Answer::Rewards { path: None };
        assert_eq!(values(&usual, r#"{"rewards": [1, null, 0.5]}"#, 3), Ok(vec![1.0, -1.0, 0.5]));
        assert_eq!(values(&usual, r#"{"score": 0.25, "comment": "x"}"#, 1), Ok(vec![0.25]));
        assert_eq!(values(&usual, "[1, 2]", 2), Ok(vec![1.0, 2.0]));
        assert_eq!(values(&usual, "0.5", 1), Ok(vec![0.5]));
        assert_eq!(values(&usual, r#"[{"score": 1}, {"reward": true}]"#, 2), Ok(vec![1.0, 1.0]));
        let error = values(&usual, r#"{"rewards": [1, 2]}"#, 3).unwrap_err();
        assert!(error.contains("2 scores for 3 samples"), "{error}");
        let error = values(&usual, r#"{"rewards": ["high"]}"#, 1).unwrap_err();
        assert!(error.contains("\"high\", which is no number"), "{error}");
        let scores = usual.read(br#"{"rewards": [1, "high", null]}"#, 3).unwrap();
        let [Cell::Value(1.0), Cell::Invalid(why), Cell::Abstained] = &scores.cells[..] else { panic!("{scores:?}") };
        assert!(why.contains("\"high\", which is no number"), "A-2: {why}");
        assert!(values(&usual, r#"{"value": 1}"#, 1).unwrap_err().contains("none of"));
        assert!(values(&usual, "{\"rewards\": [1", 1).unwrap_err().contains("invalid JSON"));
    }

    #[test]
    fn a_path_says_where_the_numbers_are() {
        let each = Answer::Rewards { path: Path::parse("data.*.probs.1") };
        let body = r#"{"data": [{"probs": [0.1, 0.9]}, {"probs": [0.8, 0.2]}]}"#;
        assert_eq!(values(&each, body, 2), Ok(vec![0.9, 0.2]));
        let list = Answer::Rewards { path: Path::parse("out.values") };
        assert_eq!(values(&list, r#"{"out": {"values": [3]}}"#, 1), Ok(vec![3.0]));
        assert!(values(&list, r#"{"out": {}}"#, 1).unwrap_err().contains("\"out.values\""));
    }

    #[test]
    fn judges_answer_in_words_or_log_probabilities() {
        let chat = Answer::Judge { api: Api::Chat, parse: Parse::Number };
        let body = r#"{"choices": [{"message": {"content": "Score: 7"}}], "usage": {"total_tokens": 12}}"#;
        assert_eq!(values(&chat, body, 1), Ok(vec![7.0]));
        assert_eq!(chat.read(body.as_bytes(), 1).unwrap().tokens, Some(12.0));
        let text = Answer::Judge { api: Api::Completions, parse: Parse::Number };
        assert_eq!(values(&text, r#"{"choices": [{"text": " 3"}]}"#, 1), Ok(vec![3.0]));
        let refused = r#"{"choices": [{"message": {"content": null, "refusal": "I can't"}}]}"#;
        assert!(values(&chat, refused, 1).unwrap_err().contains("refused: \"I can't\""));
        assert!(values(&chat, r#"{"error": "x"}"#, 1).unwrap_err().contains("no choices"));
        let parse = || Parse::LogProb { token: "Yes".to_owned(), others: Vec::new() };
        let soft = Answer::Judge { api: Api::Chat, parse: parse() };
        let body = r#"{"choices": [{"message": {"content": "Yes"}, "logprobs": {"content": [{"top_logprobs":
            [{"token": "Yes", "logprob": 0.0}]}]}}]}"#;
        assert_eq!(values(&soft, body, 1), Ok(vec![1.0]));
        let soft = Answer::Judge { api: Api::Completions, parse: parse() };
        let body = r#"{"choices": [{"text": "Yes", "logprobs": {"top_logprobs": [{"Yes": 0.0}]}}]}"#;
        assert_eq!(values(&soft, body, 1), Ok(vec![1.0]));
        for unknown in ["null", "\"-inf\"", "[]"] {
            let body = format!(
                r#"{{"choices": [{{"text": "", "logprobs": {{"top_logprobs": [{{"Yes": {unknown}, "No": -1}}]}}}}]}}"#
            );
            let others = vec!["No".to_owned()];
            let parse = Parse::LogProb { token: "Yes".to_owned(), others };
            let soft = Answer::Judge { api: Api::Completions, parse };
            assert!(values(&soft, &body, 1).unwrap_err().contains("no log-probability"), "V-1: never a guess, never 0");
        }
        let without = r#"{"choices": [{"text": "Yes", "logprobs": null}]}"#;
        assert!(values(&soft, without, 1).unwrap_err().contains("does the server have logprobs"));
    }
}
