//! Reads scores out of judges' answers: one parser a file, all of them behind `ScoreParser`.
//!
//! - An answer that two careful people could read differently is an error, never a guess, never 0.
//! - In an answer that was cut, only the part is read that no continuation can change.
//! - Answers may be hostile, since a model wrote them: reading takes time in proportion to their
//!   length.

mod candidates;
mod choice;
mod digits;
mod json;
mod logprob;
mod number;
mod parser;
mod pattern;
mod range;
mod reasoning;
mod repair_format;
mod rubric;
mod strict_json;
mod tag;
mod text;
mod value;
mod vocabulary;

pub use candidates::Which;
pub use choice::Choice;
pub use logprob::LogProb;
pub use parser::{AnswerText, Method, ScoreParser};
pub use pattern::Pattern;
pub use range::Range;
pub use rubric::{Criterion, Judgment, Layout, Rubric};
pub use value::score;

#[cfg(test)]
mod tests;
