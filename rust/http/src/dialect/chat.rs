//! Answers of OpenAI's chat completions, as vLLM, SGLang, llama.cpp, Azure and most others have
//! them.

use serde::Deserialize;

use crate::dialect::answer::{JudgeAnswer, NotAnAnswer};
use crate::dialect::choices::{FirstChoice, IndexedChoice};
use crate::dialect::usage::Usage;
use crate::quote::quoted;
use crate::raw_json::{First, Raw, each_as, number, push, text};

#[derive(Deserialize)]
struct ChatCompletion<'a> {
    #[serde(borrow, default)]
    id: Raw<'a>,
    #[serde(borrow, default)]
    model: Raw<'a>,
    #[serde(borrow, default)]
    choices: FirstChoice<ChatChoice<'a>>,
    #[serde(borrow, default)]
    error: Raw<'a>,
    #[serde(borrow, default)]
    usage: Raw<'a>,
}

#[derive(Deserialize)]
struct ChatChoice<'a> {
    #[serde(borrow, default)]
    index: Raw<'a>,
    #[serde(borrow, default)]
    message: Option<Message<'a>>,
    /// Text that an event adds to it.
    #[serde(borrow, default)]
    delta: Option<Message<'a>>,
    #[serde(borrow, default)]
    finish_reason: Raw<'a>,
    #[serde(borrow, default)]
    logprobs: Raw<'a>,
}

#[derive(Default, Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Raw<'a>,
    #[serde(borrow, default)]
    reasoning_content: Raw<'a>,
    #[serde(borrow, default)]
    reasoning: Raw<'a>,
    #[serde(borrow, default)]
    refusal: Raw<'a>,
    #[serde(borrow, default)]
    tool_calls: Raw<'a>,
}

#[derive(Deserialize)]
struct ToolCall<'a> {
    #[serde(borrow, default)]
    function: Option<CalledFunction<'a>>,
}

#[derive(Deserialize)]
struct CalledFunction<'a> {
    #[serde(borrow, default)]
    arguments: Raw<'a>,
}

/// A piece of a content that is a list.
#[derive(Deserialize)]
struct ContentPart<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    text: Raw<'a>,
    /// A list of such pieces.
    #[serde(borrow, default)]
    thinking: Raw<'a>,
}

/// Log-probabilities of a token, and of what else it might have been.
#[derive(Deserialize)]
pub(super) struct FirstToken<'a> {
    #[serde(borrow, default)]
    top_logprobs: Raw<'a>,
}

#[derive(Deserialize)]
struct LikelyToken<'a> {
    #[serde(borrow, default)]
    token: Raw<'a>,
    #[serde(borrow, default)]
    logprob: Raw<'a>,
}

#[derive(Deserialize)]
struct ChatLogprobs<'a> {
    #[serde(borrow, default)]
    content: First<FirstToken<'a>>,
}

impl IndexedChoice for ChatChoice<'_> {
    fn index(&self) -> Raw<'_> {
        self.index
    }
}

pub fn read(body: &[u8]) -> Result<JudgeAnswer, NotAnAnswer> {
    let found: ChatCompletion<'_> =
        serde_json::from_slice(body).map_err(|error| NotAnAnswer::unreadable(error, body))?;
    let choice = found.choices.0.ok_or_else(|| NotAnAnswer::missing("choices", body))?;
    if let Some(error) = found.error {
        return Err(NotAnAnswer::Failed(quoted(error.get())));
    }
    let mut answer = JudgeAnswer {
        finish_reason: text(choice.finish_reason),
        first_token: first_token(choice.logprobs),
        usage: Usage::openai(found.usage),
        model: text(found.model),
        request_id: text(found.id),
        ..JudgeAnswer::default()
    };
    say(&mut answer, choice.message.unwrap_or_default());
    answer.end();
    Ok(answer)
}

/// Adds an event of a stream; `[DONE]` is the last one, or the end of the body.
pub fn event(answer: &mut JudgeAnswer, data: &[u8]) -> Result<bool, NotAnAnswer> {
    let found: ChatCompletion<'_> =
        serde_json::from_slice(data).map_err(|error| NotAnAnswer::unreadable(error, data))?;
    if let Some(error) = found.error {
        return Err(NotAnAnswer::Failed(quoted(error.get())));
    }
    if let Some(choice) = found.choices.0 {
        let first_token = first_token(choice.logprobs);
        answer.first_token = answer.first_token.take().or(first_token);
        say(answer, choice.delta.unwrap_or_default());
        answer.finish_reason = text(choice.finish_reason).or(answer.finish_reason.take());
    }
    answer.about(Usage::openai(found.usage), text(found.model), text(found.id));
    Ok(false)
}

/// Adds what a message says.
fn say(answer: &mut JudgeAnswer, message: Message<'_>) {
    push(&mut answer.reasoning, text(message.reasoning_content).or_else(|| text(message.reasoning)));
    push(&mut answer.refusal, text(message.refusal));
    match text(message.content) {
        Some(written) => push(&mut answer.text, Some(written)),
        None => each_as(message.content, |part: ContentPart<'_>| {
            // Other parts are not text of the model: the text of a citation, or in an image.
            if text(part.kind).is_none_or(|kind| matches!(kind.as_str(), "text" | "output_text")) {
                push(&mut answer.text, text(part.text));
            }
            each_as(part.thinking, |thought: ContentPart<'_>| push(&mut answer.reasoning, text(thought.text)));
        }),
    }
    each_as(message.tool_calls, |call: ToolCall<'_>| {
        push(&mut answer.tool_call, call.function.and_then(|function| text(function.arguments)));
    });
}

fn first_token(logprobs: Raw<'_>) -> Option<Vec<(String, f64)>> {
    let logprobs: ChatLogprobs<'_> = serde_json::from_str(logprobs?.get()).ok()?;
    most_likely(logprobs.content.0?)
}

/// The most likely tokens in the place of one.
pub(super) fn most_likely(token: FirstToken<'_>) -> Option<Vec<(String, f64)>> {
    token.top_logprobs?;
    let mut found = Vec::new();
    each_as(token.top_logprobs, |likely: LikelyToken<'_>| {
        found.extend(text(likely.token).map(|token| (token, number(likely.logprob))));
    });
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_calls_are_the_text_of_an_answer_without_one() {
        let called = |content: &str| {
            let body = format!(
                r#"{{"choices": [{{"finish_reason": "tool_calls", "message": {{"content": {content}, "tool_calls": [{{"type": "function",
                "function": {{"name": "grade", "arguments": "{{\"score\": 7}}"}}}}, 3, {{"function": null}}]}}}}]}}"#
            );
            let answer = read(body.as_bytes()).unwrap();
            (answer.text.unwrap(), answer.cut)
        };
        assert_eq!(called("null"), (r#"{"score": 7}"#.to_owned(), false));
        assert_eq!(called(r#"" ""#).0, r#"{"score": 7}"#);
        assert_eq!(called(r#""Score: 6""#).0, "Score: 6");
    }

    #[test]
    fn a_chat_completion() {
        let body = r#"{"id": "chatcmpl-1", "model": "qwen3-8b-2026", "choices": [{"index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": "Score: 7", "reasoning_content": "Hm.", "tool_calls": []},
            "logprobs": {"content": [{"token": "Score", "top_logprobs": [{"token": "Score", "logprob": -0.5},
            {"token": "7", "logprob": null}]}, {"token": ":"}]}}, {"index": 1}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}, "service_tier": "default"}"#;
        let answer = read(body.as_bytes()).unwrap();
        assert_eq!(answer.text.as_deref(), Some("Score: 7"));
        assert_eq!(answer.reasoning.as_deref(), Some("Hm."));
        assert_eq!((answer.finish_reason.as_deref(), answer.cut), (Some("stop"), false));
        assert_eq!(answer.model.as_deref(), Some("qwen3-8b-2026"));
        assert_eq!(answer.request_id.as_deref(), Some("chatcmpl-1"));
        assert_eq!(answer.usage.map(|usage| (usage.prompt, usage.completion, usage.total)), Some((9, 3, 12)));
        let likely = answer.first_token.unwrap();
        assert_eq!(likely[0], ("Score".to_owned(), -0.5));
        assert!(likely[1].1.is_nan());
    }

    #[test]
    fn contents_in_parts() {
        let body = r#"{"choices": [{"message": {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]},
            {"type": "text", "text": "Score: "}, {"type": "image_url", "text": "3"}, 7, {"type": "text", "text": "8"}]}}]}"#;
        let answer = read(body.as_bytes()).unwrap();
        assert_eq!((answer.text.as_deref(), answer.reasoning.as_deref()), (Some("Score: 8"), Some("Hm")));
    }

    #[test]
    fn one_of_several_choices() {
        let text_of = |choices: &str| {
            let answer = read(format!(r#"{{"error": null, "choices": [{choices}]}}"#).as_bytes());
            answer.map_or_else(|error| error.to_string(), |answer| answer.text.unwrap_or_default())
        };
        let one = r#"{"index": 0, "message": {"content": "7"}}"#;
        let other = r#"{"index": 1, "message": {"content": "3"}}"#;
        assert_eq!(text_of(&format!("{other}, {one}")), "7");
        assert_eq!(text_of(r#"{"message": {"content": "7"}}, {"message": {"content": "3"}}"#), "7");
        assert!(text_of(other).starts_with("no choices"));
    }

    #[test]
    fn an_answer_that_was_cut() {
        let cut = |tokens: u64| {
            let body = format!(
                r#"{{"choices": [{{"message": {{"content": "1"}}, "finish_reason": "length"}}], "usage": {{"completion_tokens": {tokens}}}}}"#
            );
            read(body.as_bytes()).unwrap().cut
        };
        assert!(cut(5));
        assert!(!cut(1), "one token was asked for");
        for reason in ["content_filter", "error", "abort", "model_length", "insufficient_system_resource", "sensitive"]
        {
            let body = format!(r#"{{"choices": [{{"message": {{"content": "1"}}, "finish_reason": "{reason}"}}]}}"#);
            assert!(read(body.as_bytes()).unwrap().cut, "{reason}");
        }
    }

    #[test]
    fn other_bodies_are_not_answers() {
        let refused = r#"{"choices": [{"message": {"content": null, "refusal": "I can't"}}]}"#;
        let answer = read(refused.as_bytes()).unwrap();
        assert!(answer.text(b"").unwrap_err().contains("refused: \"I can't\""));
        let error = |body: &str| read(body.as_bytes()).unwrap_err().to_string();
        assert!(error(r#"{"error": "x"}"#).starts_with("no choices in the answer \"{"));
        assert!(error(r#"{"choices": []}"#).starts_with("no choices"));
        let failed = r#"{"choices": [{"message": {"content": "7"}}], "error": {"code": 502}}"#;
        assert_eq!(error(failed), r#"an error: "{\"code\": 502}""#);
        assert!(error(r#"{"choices": ["#).starts_with("invalid JSON (EOF"));
        assert!(error(r#"{"choices": "x"}"#).contains("expected a list"));
        let empty = read(br#"{"choices": [{}]}"#).unwrap();
        assert!(empty.text(b"{}").unwrap_err().starts_with("no text in the answer"));
    }
}
