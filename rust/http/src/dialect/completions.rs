//! Answers of OpenAI's completions, for models without a chat template.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::dialect::answer::{JudgeAnswer, NotAnAnswer};
use crate::dialect::choices::{FirstChoice, IndexedChoice};
use crate::dialect::usage::Usage;
use crate::quote::quoted;
use crate::raw_json::{First, Raw, number, push, text};

#[derive(Deserialize)]
struct TextCompletion<'a> {
    #[serde(borrow, default)]
    id: Raw<'a>,
    #[serde(borrow, default)]
    model: Raw<'a>,
    #[serde(borrow, default)]
    choices: FirstChoice<TextChoice<'a>>,
    #[serde(borrow, default)]
    usage: Raw<'a>,
    #[serde(borrow, default)]
    error: Raw<'a>,
}

#[derive(Deserialize)]
struct TextChoice<'a> {
    #[serde(borrow, default)]
    index: Raw<'a>,
    #[serde(borrow, default)]
    text: Raw<'a>,
    #[serde(borrow, default)]
    finish_reason: Raw<'a>,
    #[serde(borrow, default)]
    logprobs: Raw<'a>,
}

#[derive(Deserialize)]
struct TextLogprobs {
    #[serde(default)]
    top_logprobs: First<TokenMap>,
}

/// Tokens and their log-probabilities, an object.
struct TokenMap(Vec<(String, f64)>);

impl<'de> Deserialize<'de> for TokenMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = TokenMap;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("tokens and their log-probabilities")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<TokenMap, A::Error> {
                let mut found = Vec::new();
                while let Some((token, logprob)) = pairs.next_entry::<String, &RawValue>()? {
                    found.push((token, number(Some(logprob))));
                }
                Ok(TokenMap(found))
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}

impl IndexedChoice for TextChoice<'_> {
    fn index(&self) -> Raw<'_> {
        self.index
    }
}

pub fn read(body: &[u8]) -> Result<JudgeAnswer, NotAnAnswer> {
    let found: TextCompletion<'_> =
        serde_json::from_slice(body).map_err(|error| NotAnAnswer::unreadable(error, body))?;
    let choice = found.choices.0.ok_or_else(|| NotAnAnswer::missing("choices", body))?;
    if let Some(error) = found.error {
        return Err(NotAnAnswer::Failed(quoted(error.get())));
    }
    let mut answer = JudgeAnswer {
        text: text(choice.text),
        finish_reason: text(choice.finish_reason),
        first_token: first_token(choice.logprobs),
        usage: Usage::openai(found.usage),
        model: text(found.model),
        request_id: text(found.id),
        ..JudgeAnswer::default()
    };
    answer.end();
    Ok(answer)
}

/// Adds an event of a stream; `[DONE]` is the last one, or the end of the body.
pub fn event(answer: &mut JudgeAnswer, data: &[u8]) -> Result<bool, NotAnAnswer> {
    let found: TextCompletion<'_> =
        serde_json::from_slice(data).map_err(|error| NotAnAnswer::unreadable(error, data))?;
    if let Some(error) = found.error {
        return Err(NotAnAnswer::Failed(quoted(error.get())));
    }
    if let Some(choice) = found.choices.0 {
        let first_token = first_token(choice.logprobs);
        answer.first_token = answer.first_token.take().or(first_token);
        push(&mut answer.text, text(choice.text));
        answer.finish_reason = text(choice.finish_reason).or(answer.finish_reason.take());
    }
    answer.about(Usage::openai(found.usage), text(found.model), text(found.id));
    Ok(false)
}

fn first_token(logprobs: Raw<'_>) -> Option<Vec<(String, f64)>> {
    let logprobs: TextLogprobs = serde_json::from_str(logprobs?.get()).ok()?;
    logprobs.top_logprobs.0.map(|likely| likely.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion() {
        let body = r#"{"id": "cmpl-1", "model": "m", "choices": [{"text": " 3", "finish_reason": "length",
            "logprobs": {"tokens": [" 3"], "top_logprobs": [{" 3": -0.25, "4": "-inf"}]}}], "usage": {"total_tokens": 5}}"#;
        let answer = read(body.as_bytes()).unwrap();
        assert_eq!((answer.text.as_deref(), answer.cut), (Some(" 3"), true));
        let likely = answer.first_token.unwrap();
        assert_eq!(likely[0], (" 3".to_owned(), -0.25));
        assert!(likely[1].1.is_nan(), "never a guess");
        assert_eq!(answer.usage.unwrap().total, 5);
        let without = read(br#"{"choices": [{"text": "Yes", "logprobs": null}]}"#).unwrap();
        assert_eq!(without.first_token, None);
    }
}
