//! Answer of a judge, in the form common to all APIs.

use crate::dialect::usage::Usage;
use crate::quote::quoted;

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
            None => format!("no text in the answer {}", quoted(&String::from_utf8_lossy(body))),
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

/// Reason why the body of a response is not an answer of its API.
#[derive(Debug, thiserror::Error)]
pub enum NotAnAnswer {
    #[error("invalid JSON ({0}): {1}")]
    NotJson(serde_json::Error, String),
    #[error("{0}, in the answer {1}")]
    Unknown(String, String),
    #[error("no {0} in the answer {1}")]
    Missing(&'static str, String),
    /// The server says with status 200 that it failed.
    #[error("an error: {0}")]
    Failed(String),
}

impl NotAnAnswer {
    /// Returns the error for a missing field.
    pub(super) fn missing(what: &'static str, body: &[u8]) -> Self {
        Self::Missing(what, quoted(&String::from_utf8_lossy(body)))
    }

    /// It is not JSON, or not what this API answers.
    pub(super) fn unreadable(error: serde_json::Error, body: &[u8]) -> Self {
        let shown = quoted(&String::from_utf8_lossy(body));
        if error.is_data() { Self::Unknown(error.to_string(), shown) } else { Self::NotJson(error, shown) }
    }
}
