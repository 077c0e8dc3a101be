//! The scores that a judge may give.

use std::fmt;

use guerdon_core::outcome::Cell;

/// Highest score of answers if no range was given: "8/10" is 8.
const USUAL_TOP: f64 = 10.0;

/// Numbers from `low` to `high`, both included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    pub low: f64,
    pub high: f64,
}

impl Range {
    pub fn holds(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} to {}", self.low, self.high)
    }
}

/// Returns whether scores count up to `top`: by the range, if there is one.
#[expect(clippy::float_cmp, reason = "what an answer says is the range's end or is not")]
pub fn is_top(range: Option<Range>, top: f64) -> bool {
    top == range.map_or(USUAL_TOP, |range| range.high)
}

/// Returns whether "`low` to `high`" is how scores are given, not a score.
pub fn is_scale(range: Option<Range>, low: f64, high: f64) -> bool {
    range.map_or((low == 0.0 || low == 1.0) && is_top(None, high), |range| range == Range { low, high })
}

/// A score that a reward can be, and within the range.
pub fn fitting(cell: Cell, range: Option<Range>) -> Result<Cell, String> {
    match cell {
        Cell::Value(value) if value.is_nan() || value.abs() > f64::from(f32::MAX) => {
            Err(format!("{value}, which is not a valid reward"))
        }
        Cell::Value(value) => match range {
            Some(range) if !range.holds(value) => Err(format!("{value}, which is not in the range {range},")),
            _ => Ok(Cell::Value(value)),
        },
        other => Ok(other),
    }
}
