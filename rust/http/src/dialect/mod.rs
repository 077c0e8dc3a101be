//! The APIs that judges are asked by: how each one's answer is read. Their requests are made by
//! `guerdon._lanes.http.dialects`, once a judge.
//!
//! - For each API, an answer is a `JudgeAnswer`, or scores (`score`, `rewards`), or the results of
//!   a program (`sandbox`).
//! - A fact that one API lacks is `None`; a field of a type that nobody expects counts as missing.
//! - An answer takes about its own length in memory: only the used part of it is kept.

mod answer;
mod anthropic;
mod openai;
pub(crate) mod reported_failures;
mod responses;
pub(crate) mod rewards;
pub(crate) mod sandbox;
pub(crate) mod score;
mod usage;

use serde::Deserialize;

pub use answer::JudgeAnswer;
pub use usage::Usage;

/// API of a judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// OpenAI's chat completions, as most servers have them.
    Chat,
    /// OpenAI's completions, without a chat template.
    Completions,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Anthropic,
}

impl Api {
    /// An answer out of the body of a response; `Err` has the reason if there is none.
    pub fn read(self, body: &[u8]) -> Result<JudgeAnswer, String> {
        match self {
            Self::Chat | Self::Completions => openai::read(body),
            Self::Responses => responses::read(body),
            Self::Anthropic => anthropic::read(body),
        }
    }

    /// Adds an event of a streamed answer; whether it is the last one.
    pub fn event(self, answer: &mut JudgeAnswer, data: &[u8]) -> Result<bool, String> {
        match self {
            Self::Chat | Self::Completions => openai::take(answer, data, false).map(|()| false),
            Self::Responses => responses::event(answer, data),
            Self::Anthropic => anthropic::event(answer, data),
        }
    }

    /// Completes a streamed answer.
    pub fn finish(self, answer: &mut JudgeAnswer) {
        match self {
            Self::Chat | Self::Completions | Self::Responses => answer.end(),
            Self::Anthropic => anthropic::stopped(answer),
        }
    }
}
