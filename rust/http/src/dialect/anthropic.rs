//! Answers of Anthropic's messages.

use crate::dialect::answer::{JudgeAnswer, failed, missing, parsed, unreadable};
use crate::dialect::usage::Usage;
use crate::raw_json::{each_object, object, push, text, within};

/// Adds an event of a stream.
pub fn event(answer: &mut JudgeAnswer, data: &[u8]) -> Result<bool, String> {
    let [kind, message, delta, usage] = parsed(data, ["type", "message", "delta", "usage"])?;
    match text(kind).as_deref() {
        Some("message_stop") => return Ok(true),
        Some("error") => return Err(failed(&String::from_utf8_lossy(data))),
        _ => {}
    }
    let [prompt, model, id] = within(message, ["usage", "model", "id"]);
    answer.about(Usage::anthropic(prompt), text(model), text(id));
    let [said, thinking, partial_json, stop_reason] =
        object(delta, ["text", "thinking", "partial_json", "stop_reason"]).map_err(|error| unreadable(&error, data))?;
    push(&mut answer.text, text(said));
    push(&mut answer.reasoning, text(thinking));
    push(&mut answer.tool_call, text(partial_json));
    answer.finish_reason = text(stop_reason).or(answer.finish_reason.take());
    if let Some(written) = Usage::anthropic(usage) {
        // The prompt's tokens came with the beginning.
        let usage = answer.usage.get_or_insert_default();
        usage.completion = written.completion;
        usage.total = usage.prompt.saturating_add(usage.completion);
    }
    Ok(false)
}

pub fn read(body: &[u8]) -> Result<JudgeAnswer, String> {
    let [content, stop_reason, usage, model, id] = parsed(body, ["content", "stop_reason", "usage", "model", "id"])?;
    if content.is_none() {
        return Err(missing("content", body));
    }
    let mut answer = JudgeAnswer { finish_reason: text(stop_reason), ..JudgeAnswer::default() };
    answer.about(Usage::anthropic(usage), text(model), text(id));
    let blocks = each_object(content, ["type", "text", "thinking", "input"], |[kind, said, thinking, input]| {
        match text(kind).as_deref() {
            None | Some("text") => push(&mut answer.text, text(said)),
            // Arguments of a tool that it calls.
            Some("tool_use") => push(&mut answer.tool_call, input.map(|input| input.get().to_owned())),
            Some(_) => {}
        }
        push(&mut answer.reasoning, text(thinking));
        Ok(())
    });
    blocks.map_err(|error| unreadable(&error, body))?;
    stopped(&mut answer);
    Ok(answer)
}

/// Applies the reason of an answer's end.
pub(super) fn stopped(answer: &mut JudgeAnswer) {
    match answer.finish_reason.as_deref() {
        Some("refusal") => answer.refusal = Some(answer.text.take().unwrap_or_default()),
        _ => answer.end(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message() {
        let body = r#"{"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "text", "text": "Score: 7"}],
            "stop_reason": "end_turn", "usage": {"input_tokens": 9, "cache_read_input_tokens": 4, "output_tokens": 3}}"#;
        let answer = read(body.as_bytes()).unwrap();
        assert_eq!((answer.text.as_deref(), answer.reasoning.as_deref()), (Some("Score: 7"), Some("Hm.")));
        assert_eq!((answer.finish_reason.as_deref(), answer.cut), (Some("end_turn"), false));
        assert_eq!(answer.usage.map(|usage| (usage.prompt, usage.cached, usage.total)), Some((13, 4, 16)));
    }

    #[test]
    fn tool_calls_are_the_text_of_an_answer_without_one() {
        let body = br#"{"content": [{"type": "tool_use", "name": "grade", "input": {"score": 7}}], "stop_reason": "tool_use"}"#;
        let answer = read(body).unwrap();
        assert_eq!((answer.text.as_deref(), answer.cut), (Some(r#"{"score": 7}"#), false));
        let mut answer = JudgeAnswer::default();
        for piece in [r#"{\"score\""#, ": 7}"] {
            let delta = format!(
                r#"{{"type": "content_block_delta", "delta": {{"type": "input_json_delta", "partial_json": "{piece}"}}}}"#
            );
            event(&mut answer, delta.as_bytes()).unwrap();
        }
        stopped(&mut answer);
        assert_eq!(answer.text.as_deref(), Some(r#"{"score": 7}"#));
    }

    #[test]
    fn contradictions_are_no_answers() {
        for delta in [r#"{"text": "0", "text": "00"}"#, r#""0""#] {
            let event = format!(r#"{{"type": "content_block_delta", "delta": {delta}}}"#);
            let mut answer = JudgeAnswer { text: Some("Score: 1".to_owned()), ..JudgeAnswer::default() };
            assert!(super::event(&mut answer, event.as_bytes()).is_err(), "{delta}");
        }
        assert!(read(br#"{"content": [{"type": "text", "text": "1", "text": "10"}]}"#).is_err());
    }

    #[test]
    fn a_message_that_ended_early() {
        let of = |reason: &str| {
            let body = format!(r#"{{"content": [{{"type": "text", "text": "1"}}], "stop_reason": "{reason}"}}"#);
            read(body.as_bytes()).unwrap()
        };
        let other = r#"{"content": [{"type": "text", "text": "1"}, {"type": "tool_result", "text": "0"}]}"#;
        assert_eq!(read(other.as_bytes()).unwrap().text.as_deref(), Some("1"));
        assert!(of("pause_turn").cut);
        assert!(of("max_tokens").cut && of("model_context_window_exceeded").cut && !of("stop_sequence").cut);
        assert_eq!((of("refusal").text, of("refusal").refusal), (None, Some("1".to_owned())));
        assert!(read(br#"{"type": "error"}"#).unwrap_err().starts_with("no content in"));
        assert_eq!(read(br#"{"content": []}"#).unwrap().text, None);
    }
}
