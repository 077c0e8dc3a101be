//! Reads an answer that a judge streams (server-sent events), and stops once its score is certain.
//!
//! - A request that was answered enough ends there: its connection is closed, or its stream reset,
//!   so that the server writes no more.
//! - The parser decides when a score is certain: no later text can change it
//!   (`ScoreParser::decided`).
//! - A stream that ends without the server's reason is an error, not a shorter answer.

use guerdon_core::outcome::Cell;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::dialect::{Api, JudgeAnswer};
use crate::parse::{AnswerText, Method, ScoreParser};

/// A text is looked at again when it has grown by this part.
const LOOKS: usize = 32;

/// The part of a stream read so far.
pub struct AnswerStream {
    api: Api,
    pub answer: JudgeAnswer,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// Bytes in all.
    pub received: usize,
    ended: bool,
    /// Length of its text at the next look for a score: all of it is read each time, so that of a
    /// long one not each piece is worth a look.
    next_look: usize,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Why a stream was not read on.
pub enum StreamEnd {
    /// The server has sent all.
    Whole,
    /// The score is certain.
    Decided(Cell),
    /// It broke off, with the error if there is one.
    Broken(Option<hyper::Error>),
    /// It is not such an answer, or too long.
    Wrong(String),
}

impl AnswerStream {
    pub fn new(api: Api) -> Self {
        Self { api, answer: JudgeAnswer::default(), line: Vec::new(), received: 0, ended: false, next_look: 1 }
    }

    /// Reads on, until the next bytes were taken; `None` while it goes on.
    pub async fn next(&mut self, incoming: &mut Incoming, parser: &ScoreParser, longest: usize) -> Option<StreamEnd> {
        let bytes = match incoming.frame().await {
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(error)) => return Some(StreamEnd::Broken(Some(error))),
            None => return Some(self.end()),
        };
        self.received += bytes.len();
        if self.received > longest {
            return Some(StreamEnd::Wrong(format!("more than {longest} bytes, too long for a score")));
        }
        if let Err(why) = self.take(&bytes) {
            return Some(StreamEnd::Wrong(why));
        }
        if self.ended {
            return None; // the end of the body frees the connection
        }
        self.decided(parser).map(StreamEnd::Decided)
    }

    /// Returns the meaning of the body's end.
    fn end(&mut self) -> StreamEnd {
        let last = std::mem::take(&mut self.line);
        if let Err(why) = self.event(&last) {
            return StreamEnd::Wrong(why);
        }
        if !self.ended && self.answer.finish_reason.is_none() {
            return StreamEnd::Broken(None);
        }
        self.api.finish(&mut self.answer);
        StreamEnd::Whole
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut rest = bytes;
        // Bytes behind the end are not part of this answer.
        while !self.ended
            && let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'))
        {
            self.line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.line);
            self.event(&line)?;
        }
        if !self.ended {
            self.line.extend_from_slice(rest);
        }
        Ok(())
    }

    /// A line of the stream; each event of these APIs has its JSON on one.
    fn event(&mut self, line: &[u8]) -> Result<(), String> {
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        let Some(data) = line.strip_prefix(b"data:") else { return Ok(()) };
        let data = data.trim_ascii();
        if data.is_empty() {
            return Ok(()); // keeps the connection alive
        }
        if data == b"[DONE]" {
            self.ended = true;
            return Ok(());
        }
        self.ended |= self.api.event(&mut self.answer, data)?;
        Ok(())
    }

    /// The score, if nothing that may come can change it.
    fn decided(&mut self, parser: &ScoreParser) -> Option<Cell> {
        if let Method::LogProb(logprob) = &parser.method {
            return logprob.read(self.answer.first_token.as_ref()?).ok();
        }
        let text = self.answer.text.as_deref().filter(|text| text.len() >= self.next_look)?;
        self.next_look = text.len() + 1 + text.len() / LOOKS;
        parser.decided(AnswerText { text, reasoning: self.answer.reasoning.as_deref(), cut: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::Which;

    /// Reads a stream in pieces of `bytes` bytes.
    fn taken(api: Api, lines: &[&str], bytes: usize) -> (AnswerStream, StreamEnd) {
        let mut stream = AnswerStream::new(api);
        for piece in lines.join("\r\n\r\n").as_bytes().chunks(bytes) {
            stream.take(piece).unwrap();
        }
        let end = stream.end();
        (stream, end)
    }

    #[test]
    fn events_come_in_any_pieces() {
        let chat = [
            ": a comment",
            r#"data: {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}"#,
            r#"data: {"choices": [{"delta": {"reasoning_content": "Hm"}, "logprobs": {"content": [{"top_logprobs": [{"token": "S", "logprob": -1}]}]}}]}"#,
            r#"data:{"choices": [{"delta": {"content": "Score: "}}]}"#,
            r#"data: {"choices": [{"delta": {"content": "7é"}, "finish_reason": "length"}]}"#,
            r#"data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}}"#,
            "data: [DONE]",
        ];
        for bytes in [1, 7, 10_000] {
            let (stream, end) = taken(Api::Chat, &chat, bytes);
            assert!(matches!(end, StreamEnd::Whole));
            let answer = stream.answer;
            assert_eq!((answer.text.as_deref(), answer.reasoning.as_deref()), (Some("Score: 7é"), Some("Hm")));
            assert_eq!((answer.cut, answer.usage.map(|usage| usage.total)), (true, Some(14)));
            assert_eq!(answer.first_token, Some(vec![("S".to_owned(), -1.0)]));
            assert_eq!((answer.request_id.as_deref(), answer.model.as_deref()), (Some("c1"), Some("m")));
        }
        let (_, end) = taken(Api::Chat, &chat[..4], 100);
        assert!(matches!(end, StreamEnd::Broken(None)), "the server did not say that this is all");
    }

    /// All of a text is read at each look: one a token would take minutes for a long one.
    #[test]
    fn a_long_answer_in_many_pieces() {
        let parser = ScoreParser { which: Which::First, ..Method::Number.into() };
        let (mut stream, mut looks) = (AnswerStream::new(Api::Chat), 0);
        for _ in 0..4000 {
            stream.event(br#"data: {"choices": [{"delta": {"content": "one more word, "}}]}"#).unwrap();
            let before = stream.next_look;
            assert!(stream.decided(&parser).is_none());
            looks += usize::from(stream.next_look > before);
        }
        assert!((50..400).contains(&looks), "{looks}");
    }

    #[test]
    fn only_what_this_answer_says_counts() {
        let delta = |index: u32, text: &str| {
            format!(r#"data: {{"choices": [{{"index": {index}, "delta": {{"content": "{text}"}}}}]}}"#)
        };
        let (one, other, nothing) = (delta(0, "1"), delta(1, "3"), delta(0, ""));
        let half = delta(0, "\\ud83d 1");
        for (lines, text) in [
            (vec!["\u{feff}data: {}", &one], "1"),
            (vec![&format!("\u{feff}{one}"), &delta(0, "0")], "10"),
            (vec![&other, &one, &other], "1"),
            (vec![&one, "data: [DONE]", &one], "1"),
            (vec![&one, "data:", &nothing, &one], "11"),
            (vec![&half, &one], "\u{fffd}\u{fffd}\u{fffd} 11"),
        ] {
            for bytes in [1, 10_000] {
                let (stream, _) = taken(Api::Chat, &lines, bytes);
                assert_eq!(stream.answer.text.as_deref(), Some(text), "{lines:?}");
            }
        }
    }

    #[test]
    fn streams_of_the_other_apis() {
        let (stream, end) =
            taken(Api::Completions, &[r#"data: {"choices": [{"text": " 3", "finish_reason": "stop"}]}"#], 9);
        assert!(matches!(end, StreamEnd::Whole));
        assert_eq!(stream.answer.text.as_deref(), Some(" 3"));
        let responses = [
            "event: response.output_text.delta",
            r#"data: {"type": "response.reasoning_summary_text.delta", "delta": "Hm"}"#,
            r#"data: {"type": "response.output_text.delta", "delta": "Score: "}"#,
            r#"data: {"type": "response.output_text.delta", "delta": "8"}"#,
            r#"data: {"type": "response.completed", "response": {"status": "completed", "output": [{"type": "message", "content": [{"type": "output_text", "text": "Score: 8"}]}], "usage": {"output_tokens": 4}}}"#,
        ];
        let (stream, end) = taken(Api::Responses, &responses, 11);
        assert!(matches!(end, StreamEnd::Whole));
        assert_eq!(
            (stream.answer.text.as_deref(), stream.answer.usage.map(|usage| usage.completion)),
            (Some("Score: 8"), Some(4))
        );
        let (stream, _) = taken(Api::Responses, &responses[..4], 11);
        assert_eq!((stream.answer.text.as_deref(), stream.answer.reasoning.as_deref()), (Some("Score: 8"), Some("Hm")));
        let messages = [
            r#"data: {"type": "message_start", "message": {"id": "msg", "model": "m", "content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}}"#,
            r#"data: {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}}"#,
            r#"data: {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Score: 6"}}"#,
            r#"data: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}"#,
            r#"data: {"type": "message_stop"}"#,
        ];
        let (stream, end) = taken(Api::Anthropic, &messages, 13);
        assert!(matches!(end, StreamEnd::Whole));
        assert_eq!((stream.answer.text.as_deref(), stream.answer.reasoning.as_deref()), (Some("Score: 6"), Some("Hm")));
        assert_eq!(stream.answer.usage.map(|usage| (usage.prompt, usage.completion)), Some((9, 7)));
        for (api, line) in [
            (Api::Chat, r#"data: {"error": {"message": "overloaded"}}"#),
            (Api::Responses, r#"data: {"type": "error", "message": "overloaded"}"#),
            (Api::Anthropic, r#"data: {"type": "error", "error": {"type": "overloaded_error"}}"#),
        ] {
            let (_, end) = taken(api, &[line], 1000);
            assert!(matches!(end, StreamEnd::Wrong(why) if why.contains("overloaded")));
        }
    }
}
