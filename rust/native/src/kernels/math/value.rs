//! Value of an answer, as far as there are rules for it, and the decision on two.

use crate::kernels::math::number::Number;

/// An answer that was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    Number(Number),
    /// `x = 5`.
    Assignment(char, Number),
    /// One letter or word; case doesn't count.
    Word(&'a str),
    /// LaTeX that is the same for both of math-verify's ways to normalise it: it equals itself, and
    /// nothing is known of other pairs.
    Latex(&'a str),
}

/// Decision of math-verify on two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Different,
    Equal,
    /// The gold text has no answer in it.
    NoGold,
    /// Ask math-verify.
    Unknown,
}
