//! Compares an answer with a gold answer as math-verify does, if that is certain.
//!
//! - `decide` returns math-verify's decision, or `Unknown`; a wrong guess is a fault of this
//!   module.
//! - The part that math-verify takes as a text's answer is found first (`extract`), then read
//!   (`value`), then compared (`compare`); each step gives up on texts without a certain rule.
//! - Every step takes linear time.

mod compare;
mod extract;
mod latex;
mod number;
mod plain;
mod value;

use compare::compare;
use extract::{Extraction, found_by_box, found_by_default};
pub use value::Decision;

/// The comparison of math-verify to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// `verify(parse(gold), parse(answer))`.
    Equal,
    /// TRL's `accuracy_reward`: only a box, or LaTeX behind the word "answer", counts in an answer.
    Reward,
}

/// Returns math-verify's decision on this pair, if it is certain. If `strict` is set, returns the
/// correct decision where math-verify is lax (9 % is 9, 0.333333 is 1/3, A is a).
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
