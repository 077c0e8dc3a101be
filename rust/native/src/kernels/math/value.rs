//! Value of an answer, as far as there are rules for it, and the decision on a pair.

use crate::kernels::math::number::Number;

/// The value of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    Number(Number),
    /// `x = 5`.
    Assignment(char, Number),
    /// One letter or word; case doesn't count.
    Word(&'a str),
    /// LaTeX for which both of math-verify's normalisations agree: it equals itself, and other
    /// pairs are undecided.
    Latex(&'a str),
}

/// Decision on a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Different,
    Equal,
    /// The gold text contains no answer.
    NoGold,
    /// Only math-verify can decide.
    Unknown,
}
