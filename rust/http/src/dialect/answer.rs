//! Answer of a judge, in the form common to all APIs.

use crate::dialect::usage::Usage;
use crate::quote::quoted;
use crate::raw_json::{Raw, fields};

/// Finish reasons of a complete answer, of all APIs and in any case. Every other one ends an answer
/// before its end: servers have many names for that ("abort", "model_length", "sensitive").
const COMPLETE: &[&str] = &[
    "stop",
    "eos",
    "eos_token",
    "stop_sequence",
    "end_turn",
    "tool_calls",
    "tool_use",
    "function_call",
    "complete",
    "completed",
];
/// Finish reasons of an answer whose tokens were used up.
const USED_UP: &[&str] = &["length", "max_tokens", "max_output_tokens"];

/// Answer of a judge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JudgeAnswer {
    /// Its text; `None` if there is no text, as in a refusal.
    pub text: Option<String>,
    /// Arguments of the tools that it calls.
    pub tool_call: Option<String>,
    /// Reasoning before the answer, if the server keeps it apart from the text.
    pub reasoning: Option<String>,
    /// Why it says nothing.
    pub refusal: Option<String>,
    /// Why the answer ends, in the API's own word.
    pub finish_reason: Option<String>,
    /// It would have gone on: its tokens were used up, or something stopped it. An answer of one
    /// token was meant to end there.
    pub cut: bool,
    /// The most likely first tokens, each with its log-probability: NaN where that is not a
    /// number.
    pub first_token: Option<Vec<(String, f64)>>,
    pub usage: Option<Usage>,
    /// Name by the server, which may be more exact than the requested one.
    pub model: Option<String>,
    /// Id of this answer for questions to the server's provider.
    pub request_id: Option<String>,
}

impl JudgeAnswer {
    /// Its text; `Err` says why there is nothing. `body` is the body that it was read from.
    pub fn text(&self, body: &[u8]) -> Result<&str, String> {
        self.text.as_deref().ok_or_else(|| match &self.refusal {
            Some(refusal) => format!("the judge refused: {}", quoted(refusal)),
            None => missing("text", body),
        })
    }

    /// Takes over the facts of an event about the answer as a whole.
    pub(super) fn about(&mut self, usage: Option<Usage>, model: Option<String>, request_id: Option<String>) {
        self.usage = usage.or(self.usage);
        self.model = model.or(self.model.take());
        self.request_id = request_id.or(self.request_id.take());
    }

    /// Ends the answer: it is cut unless the finish reason is one of a complete answer, and tool
    /// calls take the place of a missing text.
    pub(super) fn end(&mut self) {
        if self.text.as_ref().is_none_or(|text| text.trim().is_empty()) {
            self.text = self.tool_call.take().or(self.text.take());
        }
        let Some(reason) = &self.finish_reason else { return };
        let is_in = |list: &[&str]| list.iter().any(|known| known.eq_ignore_ascii_case(reason));
        let single = self.usage.is_some_and(|usage| usage.completion == 1) && is_in(USED_UP);
        self.cut = !is_in(COMPLETE) && !single;
    }
}

/// The values of these names in an answer or an event; `Err` says why the API has no such answer.
pub(super) fn parsed<'a, const N: usize>(data: &'a [u8], names: [&str; N]) -> Result<[Raw<'a>; N], String> {
    fields(data, names).map_err(|error| unreadable(&error, data))
}

/// Returns the reason for a body that is not JSON, or not of the expected form.
pub(super) fn unreadable(error: &serde_json::Error, data: &[u8]) -> String {
    if error.is_data() { unknown(&error.to_string(), data) } else { format!("invalid JSON ({error}): {}", shown(data)) }
}

/// Returns the reason for a field of another type.
pub(super) fn unknown(what: &str, body: &[u8]) -> String {
    format!("{what}, in the answer {}", shown(body))
}

/// Returns the reason for a missing field.
pub(super) fn missing(what: &str, body: &[u8]) -> String {
    format!("no {what} in the answer {}", shown(body))
}

/// Returns the reason for an answer that says, with status 200, that the server failed.
pub(super) fn failed(error: &str) -> String {
    format!("an error: {}", quoted(error))
}

fn shown(body: &[u8]) -> String {
    quoted(&String::from_utf8_lossy(body))
}
