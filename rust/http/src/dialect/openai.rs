//! Answers of OpenAI's chat completions, as vLLM, SGLang, llama.cpp, Azure and most others have
//! them, and of its completions, for models without a chat template.
//!
//! Choices may come in any order, and each event of a stream may be of another one: only the one
//! with the index 0 counts, so that what two of them say is never joined.

use serde::de::IgnoredAny;

use crate::dialect::answer::{JudgeAnswer, failed, missing, unreadable};
use crate::dialect::usage::Usage;
use crate::raw_json::{
    FirstOf, Names, Raw, Taken, each, each_field, each_object, first, number, object, present, push, text, within,
};

pub fn read(body: &[u8]) -> Result<JudgeAnswer, String> {
    let mut answer = JudgeAnswer::default();
    take(&mut answer, body, true)?;
    answer.end();
    Ok(answer)
}

/// Adds an answer, or an event of its stream: `[DONE]` is the last one, or the end of the body.
pub fn take(answer: &mut JudgeAnswer, data: &[u8], whole: bool) -> Result<(), String> {
    let message = Names::of(["content", "reasoning_content", "reasoning", "refusal", "tool_calls"]);
    let choice = Names::of(["index", "text", "finish_reason", "logprobs"])
        .with(if whole { "message" } else { "delta" }, message);
    let names = Names::of(["error", "usage", "model", "id"]).with("choices", FirstOf(choice, that_counts));
    let (found, choice) = names.read(data).map_err(|error| unreadable(&error, data))?;
    let [error, usage, model, id] = present(found);
    let choice = choice.flatten();
    if whole && choice.is_none() {
        return Err(missing("choices", data));
    }
    if let Some(error) = error {
        return Err(failed(error.get()));
    }
    if let Some(choice) = choice {
        choose(answer, choice).map_err(|error| unreadable(&error, data))?;
    }
    answer.about(Usage::openai(usage), text(model), text(id));
    Ok(())
}

/// A choice: its index, text, reason to end and log-probabilities, and the fields of its message.
type Choice<'a> = Taken<'a, 4, Message<'a>>;
type Message<'a> = Taken<'a, 5, IgnoredAny>;

/// Returns a choice with the index 0, or none: the first one counts.
fn that_counts((found, message): Choice<'_>) -> Option<Choice<'_>> {
    let found = present(found);
    found[0].is_none_or(|index| number(Some(index)) == 0.0).then_some((found, message))
}

/// Adds a choice: what its message says, or the text of a completion.
fn choose(
    answer: &mut JudgeAnswer,
    ([_, said, finish_reason, logprobs], message): Choice<'_>,
) -> serde_json::Result<()> {
    let length = |answer: &JudgeAnswer| answer.text.as_ref().map(String::len);
    let before = length(answer);
    if let Some((message, _)) = message {
        say(answer, message)?;
    }
    if length(answer) == before {
        push(&mut answer.text, text(said));
    }
    answer.first_token = answer.first_token.take().or_else(|| first_token(logprobs));
    answer.finish_reason = text(finish_reason).or(answer.finish_reason.take());
    Ok(())
}

/// Adds what a message says.
fn say(
    answer: &mut JudgeAnswer,
    [content, reasoning_content, reasoning, refusal, tool_calls]: [Raw<'_>; 5],
) -> serde_json::Result<()> {
    push(&mut answer.reasoning, text(reasoning_content).or_else(|| text(reasoning)));
    push(&mut answer.refusal, text(refusal));
    match text(content) {
        Some(written) => push(&mut answer.text, Some(written)),
        None => each_object(content, ["type", "text", "thinking"], |[kind, said, thinking]| {
            // Other parts are not text of the model: the text of a citation, or in an image.
            if text(kind).is_none_or(|kind| matches!(kind.as_str(), "text" | "output_text")) {
                push(&mut answer.text, text(said));
            }
            each_object(thinking, ["text"], |[said]| {
                push(&mut answer.reasoning, text(said));
                Ok(())
            })
        })?,
    }
    each_object(tool_calls, ["function"], |[function]| {
        let [arguments] = object(function, ["arguments"])?;
        push(&mut answer.tool_call, text(arguments));
        Ok(())
    })
}

/// The most likely first tokens: of a chat in a list, of a completion in an object.
fn first_token(logprobs: Raw<'_>) -> Option<Vec<(String, f64)>> {
    let [content, top_logprobs] = within(logprobs, ["content", "top_logprobs"]);
    if content.is_some() {
        return most_likely(first(content));
    }
    let (likely, mut found) = (first(top_logprobs)?, Vec::new());
    let whole = each_field(likely.get().as_bytes(), |token, logprob| {
        found.push((token.to_owned(), number(Some(logprob))));
    });
    whole.is_ok().then_some(found)
}

/// The most likely tokens in the place of one.
pub(super) fn most_likely(token: Raw<'_>) -> Option<Vec<(String, f64)>> {
    let [top_logprobs] = within(token, ["top_logprobs"]);
    let mut found = Vec::new();
    each(top_logprobs?, |likely| {
        let [token, logprob] = within(Some(likely), ["token", "logprob"]);
        found.extend(text(token).map(|token| (token, number(logprob))));
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
            answer.map_or_else(|error| error, |answer| answer.text.unwrap_or_default())
        };
        let one = r#"{"index": 0, "message": {"content": "7"}}"#;
        let other = r#"{"index": 1, "message": {"content": "3"}}"#;
        assert_eq!(text_of(&format!("{other}, {one}")), "7");
        assert_eq!(text_of(r#"{"message": {"content": "7"}}, {"message": {"content": "3"}}"#), "7");
        assert!(text_of(other).starts_with("no choices"));
    }

    #[test]
    fn contradictions_are_no_answers() {
        for (body, whole) in [
            (r#"{"choices": [{"message": {"content": "1", "content": "10"}}]}"#, true),
            (r#"{"choices": [{"message": {"content": [{"text": "1", "text": "10"}]}}]}"#, true),
            (
                r#"{"choices": [{"message": {"content": "1", "finish_reason": "a"}, "finish_reason": "b", "finish_reason": "c"}]}"#,
                true,
            ),
            (
                r#"{"choices": [{"index": 1, "index": 0, "message": {"content": "3"}}, {"message": {"content": "7"}}]}"#,
                true,
            ),
            (r#"{"choices": [{"delta": {"content": "0", "content": "00"}}]}"#, false),
            (r#"{"choices": [{"delta": "0"}]}"#, false),
            (r#"{"choices": ["0"]}"#, false),
        ] {
            let mut answer = JudgeAnswer { text: Some("Score: 1".to_owned()), ..JudgeAnswer::default() };
            assert!(take(&mut answer, body.as_bytes(), whole).is_err(), "{body}");
        }
        let same = read(br#"{"choices": [{"message": {"content": "7", "content": "7"}}]}"#).unwrap();
        assert_eq!(same.text.as_deref(), Some("7"));
    }

    #[test]
    fn fields_that_nobody_reads_may_be_anything() {
        let body = b"{\"system_fingerprint\": \"\xff\", \"choices\": [{\"message\": {\"content\": \"7\"}}]}";
        assert_eq!(read(body).unwrap().text.as_deref(), Some("7"));
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
        let error = |body: &str| read(body.as_bytes()).unwrap_err();
        assert!(error(r#"{"error": "x"}"#).starts_with("no choices in the answer \"{"));
        assert!(error(r#"{"choices": []}"#).starts_with("no choices"));
        let failed = r#"{"choices": [{"message": {"content": "7"}}], "error": {"code": 502}}"#;
        assert_eq!(error(failed), r#"an error: "{\"code\": 502}""#);
        assert!(error(r#"{"choices": ["#).starts_with("invalid JSON (EOF"));
        for twice in [
            r#"{"choices": [{"message": {"content": "7"}, "message": {"content": "3"}}]}"#,
            r#"{"choices": [{"message": {"content": "7"}}], "choices": [{"message": {"content": "3"}}]}"#,
            r#"{"choices": [{"message": {"content": "7"}}], "choices": null}"#,
        ] {
            assert!(error(twice).contains("twice, with different values"), "{twice}");
        }
        for alike in [
            r#"{"choices": [{"message": {"content": "7"}, "message": {"content":"7"}}]}"#,
            r#"{"choices": [{"message": {"content": "7"}}], "choices": [{"message": {"content": "7"}}]}"#,
        ] {
            assert_eq!(read(alike.as_bytes()).unwrap().text.as_deref(), Some("7"), "{alike}");
        }
        assert!(error(r#"{"choices": [{"message": "7"}]}"#).contains("expected an object"));
        assert!(error(r#"{"choices": null}"#).starts_with("no choices"));
        assert!(read(br#"{"choices": [{"message": null, "text": "7"}, 3]}"#).is_ok(), "later choices are not read");
        assert!(error(r#"{"choices": "x"}"#).contains("expected a list"));
        let empty = read(br#"{"choices": [{}]}"#).unwrap();
        assert!(empty.text(b"{}").unwrap_err().starts_with("no text in the answer"));
    }

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
        let beside = read(br#"{"choices": [{"text": "7", "message": {}}]}"#).unwrap();
        assert_eq!(beside.text.as_deref(), Some("7"));
        let without = read(br#"{"choices": [{"text": "Yes", "logprobs": null}]}"#).unwrap();
        assert_eq!(without.first_token, None);
    }
}
