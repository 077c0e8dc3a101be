//! Whether an answer is a gold answer, as math-verify says, where that is certain.
//!
//! - `decide` says what math-verify says, or that it doesn't know; a guess is a fault.
//! - What math-verify takes for the answer of a text is found first (`extract`), then read
//!   (`value`), then compared (`compare`); each step gives up on what it hasn't got a rule for.
//! - Nothing takes more than linear time.

mod compare;
mod extract;
mod latex;
mod number;
mod plain;
mod value;

use compare::compare;
use extract::{Extraction, found_by_box, found_by_default};
pub use value::Decision;

/// How math-verify is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// `verify(parse(gold), parse(answer))`.
    Equal,
    /// TRL's `accuracy_reward`: only a box, or LaTeX behind the word "answer", counts in an answer.
    Reward,
}

/// What math-verify says of this pair, as far as it is certain; `strict`: where it is lax (9 % is
/// 9, 0.333333 is 1/3, A is a), what is right.
#[must_use]
pub fn decide(question: Question, gold: &str, answer: &str, strict: bool) -> Decision {
    let by_box = question == Question::Reward;
    let gold = match found_by_default(gold) {
        Extraction::Unknown => return Decision::Unknown,
        Extraction::Nothing => return if by_box { Decision::NoGold } else { Decision::Different },
        Extraction::Value(value) => value,
    };
    match if by_box { found_by_box(answer) } else { found_by_default(answer) } {
        Extraction::Unknown => Decision::Unknown,
        Extraction::Nothing => Decision::Different,
        Extraction::Value(answer) => compare(&gold, &answer, strict),
    }
}

#[cfg(test)]
mod tests;
