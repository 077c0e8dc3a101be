//! Answers of OpenAI's responses.

use serde::Deserialize;

use crate::dialect::answer::{JudgeAnswer, NotAnAnswer};
use crate::dialect::chat::{FirstToken, most_likely};
use crate::dialect::usage::Usage;
use crate::quote::quoted;
use crate::raw_json::{First, Raw, each_as, push, text};

#[derive(Deserialize)]
struct ModelResponse<'a> {
    #[serde(borrow, default)]
    id: Raw<'a>,
    #[serde(borrow, default)]
    model: Raw<'a>,
    #[serde(borrow, default)]
    status: Raw<'a>,
    #[serde(borrow, default)]
    error: Raw<'a>,
    #[serde(borrow, default)]
    incomplete_details: Raw<'a>,
    #[serde(borrow, default)]
    output: Raw<'a>,
    #[serde(borrow, default)]
    usage: Raw<'a>,
}

#[derive(Deserialize)]
struct Incomplete<'a> {
    #[serde(borrow, default)]
    reason: Raw<'a>,
}

/// A message, or reasoning, or the call of a tool.
#[derive(Deserialize)]
struct OutputItem<'a> {
    #[serde(borrow, default)]
    role: Raw<'a>,
    #[serde(borrow, default, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    content: Raw<'a>,
    #[serde(borrow, default)]
    summary: Raw<'a>,
    #[serde(borrow, default)]
    arguments: Raw<'a>,
}

#[derive(Deserialize)]
struct OutputPart<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    text: Raw<'a>,
    #[serde(borrow, default)]
    refusal: Raw<'a>,
    #[serde(borrow, default)]
    logprobs: Raw<'a>,
}

/// Event of a stream.
#[derive(Deserialize)]
struct ResponseEvent<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    delta: Raw<'a>,
    #[serde(borrow, default)]
    logprobs: Raw<'a>,
    #[serde(borrow, default)]
    response: Raw<'a>,
}

/// Adds an event of a stream; the last one has the whole answer.
pub fn event(answer: &mut JudgeAnswer, data: &[u8]) -> Result<bool, NotAnAnswer> {
    let found: ResponseEvent<'_> =
        serde_json::from_slice(data).map_err(|error| NotAnAnswer::unreadable(error, data))?;
    match text(found.kind).as_deref() {
        Some("response.output_text.delta") => {
            let first_token = first_token(found.logprobs);
            answer.first_token = answer.first_token.take().or(first_token);
            push(&mut answer.text, text(found.delta));
        }
        Some("response.reasoning_text.delta" | "response.reasoning_summary_text.delta") => {
            push(&mut answer.reasoning, text(found.delta));
        }
        Some("response.refusal.delta") => push(&mut answer.refusal, text(found.delta)),
        Some("response.completed" | "response.incomplete" | "response.failed") => {
            *answer = read(found.response.map_or("null", |response| response.get()).as_bytes())?;
            return Ok(true);
        }
        Some("error") => return Err(NotAnAnswer::Failed(quoted(&String::from_utf8_lossy(data)))),
        _ => {}
    }
    Ok(false)
}

pub fn read(body: &[u8]) -> Result<JudgeAnswer, NotAnAnswer> {
    let found: ModelResponse<'_> =
        serde_json::from_slice(body).map_err(|error| NotAnAnswer::unreadable(error, body))?;
    let status = text(found.status);
    if status.as_deref() == Some("failed") || found.error.is_some() {
        return Err(NotAnAnswer::Failed(quoted(found.error.map_or("", |error| error.get()))));
    }
    if found.output.is_none() {
        return Err(NotAnAnswer::missing("output", body));
    }
    let incomplete: Option<Incomplete<'_>> =
        found.incomplete_details.and_then(|given| serde_json::from_str(given.get()).ok());
    let mut answer = JudgeAnswer {
        finish_reason: incomplete.and_then(|given| text(given.reason)).or(status),
        usage: Usage::openai(found.usage),
        model: text(found.model),
        request_id: text(found.id),
        ..JudgeAnswer::default()
    };
    each_as(found.output, |item: OutputItem<'_>| take(&mut answer, &item));
    answer.end();
    Ok(answer)
}

/// Adds what an item says.
fn take(answer: &mut JudgeAnswer, item: &OutputItem<'_>) {
    if let (Some("message"), Some(text)) = (text(item.kind).as_deref(), &mut answer.text) {
        text.push('\n'); // the digits of two messages are no number of two digits
    }
    match text(item.kind).as_deref() {
        Some("message") if text(item.role).is_some_and(|role| role != "assistant") => {}
        Some("message") => each_as(item.content, |part: OutputPart<'_>| match text(part.kind).as_deref() {
            Some("refusal") => push(&mut answer.refusal, text(part.refusal)),
            Some("output_text") => {
                push(&mut answer.text, text(part.text));
                if answer.first_token.is_none() {
                    answer.first_token = first_token(part.logprobs);
                }
            }
            _ => {}
        }),
        Some("function_call") => push(&mut answer.tool_call, text(item.arguments)),
        Some("reasoning") => {
            let before = answer.reasoning.as_ref().map_or(0, String::len);
            each_as(item.content, |part: OutputPart<'_>| push(&mut answer.reasoning, text(part.text)));
            if answer.reasoning.as_ref().map_or(0, String::len) == before {
                each_as(item.summary, |part: OutputPart<'_>| push(&mut answer.reasoning, text(part.text)));
            }
        }
        _ => {}
    }
}

fn first_token(logprobs: Raw<'_>) -> Option<Vec<(String, f64)>> {
    let First(first): First<FirstToken<'_>> = serde_json::from_str(logprobs?.get()).ok()?;
    most_likely(first?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response() {
        let body = r#"{"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5-2026", "error": null,
            "output": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "content": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Score: ", "logprobs":
            [{"token": "Score", "top_logprobs": [{"token": "Score", "logprob": -0.5}]}]}, {"type": "output_text", "text": "7"}]}],
            "usage": {"input_tokens": 9, "output_tokens": 30, "output_tokens_details": {"reasoning_tokens": 25}}}"#;
        let answer = read(body.as_bytes()).unwrap();
        assert_eq!((answer.text.as_deref(), answer.reasoning.as_deref()), (Some("Score: 7"), Some("Hm.")));
        assert_eq!((answer.finish_reason.as_deref(), answer.cut), (Some("completed"), false));
        assert_eq!(answer.first_token, Some(vec![("Score".to_owned(), -0.5)]));
        let usage = answer.usage.unwrap();
        assert_eq!((usage.prompt, usage.completion, usage.reasoning, usage.total), (9, 30, 25, 39));
    }

    #[test]
    fn tool_calls_are_the_text_of_an_answer_without_one() {
        let body = br#"{"status": "completed", "output": [{"type": "function_call", "name": "grade", "arguments": "{\"score\": 7}"}]}"#;
        assert_eq!(read(body).unwrap().text.as_deref(), Some(r#"{"score": 7}"#));
    }

    #[test]
    fn a_response_that_ended_early() {
        let body = r#"{"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": [
            {"type": "message", "content": [{"type": "output_text", "text": "Score: 1"}]}], "usage": {"output_tokens": 16}}"#;
        assert!(read(body.as_bytes()).unwrap().cut);
        let refused = r#"{"status": "completed", "output": [{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}]}"#;
        let answer = read(refused.as_bytes()).unwrap();
        assert_eq!((answer.text, answer.refusal.as_deref()), (None, Some("No.")));
        let failed = br#"{"status": "failed", "error": {"code": "server_error", "message": "later"}, "output": []}"#;
        assert!(read(failed).unwrap_err().to_string().contains("server_error"));
        let failed = br#"{"error": {"message": "later"}, "output": [{"type": "message", "content": []}]}"#;
        assert!(read(failed).unwrap_err().to_string().contains("later"));
        let body = r#"{"status": "incomplete", "output": [
            {"type": "message", "role": "user", "content": [{"type": "output_text", "text": "3"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "1"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "0"}]}]}"#;
        let answer = read(body.as_bytes()).unwrap();
        assert_eq!((answer.text.as_deref(), answer.cut), (Some("1\n0"), true));
        assert!(read(b"{}").unwrap_err().to_string().starts_with("no output in"));
    }
}
