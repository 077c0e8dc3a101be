//! Answers of OpenAI's responses.

use crate::dialect::answer::{JudgeAnswer, failed, missing, parsed, unreadable};
use crate::dialect::openai::most_likely;
use crate::dialect::usage::Usage;
use crate::raw_json::{Raw, each_object, first, push, text, within};

/// Adds an event of a stream; the last one has the whole answer.
pub fn event(answer: &mut JudgeAnswer, data: &[u8]) -> Result<bool, String> {
    let [kind, delta, logprobs, response] = parsed(data, ["type", "delta", "logprobs", "response"])?;
    match text(kind).as_deref() {
        Some("response.output_text.delta") => {
            answer.first_token = answer.first_token.take().or_else(|| most_likely(first(logprobs)));
            push(&mut answer.text, text(delta));
        }
        Some("response.reasoning_text.delta" | "response.reasoning_summary_text.delta") => {
            push(&mut answer.reasoning, text(delta));
        }
        Some("response.refusal.delta") => push(&mut answer.refusal, text(delta)),
        Some("response.completed" | "response.incomplete" | "response.failed") => {
            *answer = read(response.map_or("null", |response| response.get()).as_bytes())?;
            return Ok(true);
        }
        Some("error") => return Err(failed(&String::from_utf8_lossy(data))),
        _ => {}
    }
    Ok(false)
}

pub fn read(body: &[u8]) -> Result<JudgeAnswer, String> {
    let names = ["status", "error", "incomplete_details", "output", "usage", "model", "id"];
    let [status, error, incomplete, output, usage, model, id] = parsed(body, names)?;
    let status = text(status);
    if status.as_deref() == Some("failed") || error.is_some() {
        return Err(failed(error.map_or("", |error| error.get())));
    }
    if output.is_none() {
        return Err(missing("output", body));
    }
    let [reason] = within(incomplete, ["reason"]);
    let mut answer = JudgeAnswer { finish_reason: text(reason).or(status), ..JudgeAnswer::default() };
    answer.about(Usage::openai(usage), text(model), text(id));
    let names = ["type", "role", "content", "summary", "arguments"];
    each_object(output, names, |item| take(&mut answer, item)).map_err(|error| unreadable(&error, body))?;
    answer.end();
    Ok(answer)
}

/// Adds what an item says.
fn take(answer: &mut JudgeAnswer, item: [Raw<'_>; 5]) -> serde_json::Result<()> {
    let [kind, role, content, summary, arguments] = item;
    let kind = text(kind);
    if let (Some("message"), Some(text)) = (kind.as_deref(), &mut answer.text) {
        text.push('\n'); // the digits of two messages are no number of two digits
    }
    match kind.as_deref() {
        Some("message") if text(role).is_some_and(|role| role != "assistant") => {}
        Some("message") => {
            let names = ["type", "text", "refusal", "logprobs"];
            each_object(content, names, |[kind, said, refusal, logprobs]| {
                match text(kind).as_deref() {
                    Some("refusal") => push(&mut answer.refusal, text(refusal)),
                    Some("output_text") => {
                        push(&mut answer.text, text(said));
                        answer.first_token = answer.first_token.take().or_else(|| most_likely(first(logprobs)));
                    }
                    _ => {}
                }
                Ok(())
            })?;
        }
        Some("function_call") => push(&mut answer.tool_call, text(arguments)),
        Some("reasoning") => {
            let mut add = |parts| {
                each_object(parts, ["text"], |[said]| {
                    push(&mut answer.reasoning, text(said));
                    Ok(())
                })?;
                Ok(answer.reasoning.as_ref().map_or(0, String::len))
            };
            if add(None)? == add(content)? {
                add(summary)?;
            }
        }
        _ => {}
    }
    Ok(())
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
        assert!(read(failed).unwrap_err().contains("server_error"));
        let failed = br#"{"error": {"message": "later"}, "output": [{"type": "message", "content": []}]}"#;
        assert!(read(failed).unwrap_err().contains("later"));
        let body = r#"{"status": "incomplete", "output": [
            {"type": "message", "role": "user", "content": [{"type": "output_text", "text": "3"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "1"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "0"}]}]}"#;
        let answer = read(body.as_bytes()).unwrap();
        assert_eq!((answer.text.as_deref(), answer.cut), (Some("1\n0"), true));
        assert!(read(b"{}").unwrap_err().starts_with("no output in"));
    }
}
