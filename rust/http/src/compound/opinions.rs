//! Opinions of one sample as they come in, and how they are shown.

use guerdon_core::outcome::{Cell, Failure};

use crate::compound::reduce::{Opinion, ReducedScore};
use crate::compound::unit::{Cells, broken};
use crate::response::Scores;

/// Returns the opinion of an answer on its one sample; what failed, with the reason.
pub fn opinion(answer: &Result<Scores, Failure>) -> (Opinion, Option<String>) {
    let scores = match answer {
        Ok(scores) => scores,
        Err(failure) => return (Opinion::Failed, Some(failure.reason.clone())),
    };
    match scores.cells.first() {
        Some(Cell::Value(score)) if score.is_finite() => (Opinion::Score(*score), None),
        Some(Cell::Value(score)) => (Opinion::Failed, Some(format!("the score {score} is not a reward"))),
        Some(Cell::Abstained) => (Opinion::Abstained, None),
        Some(Cell::Invalid(why)) => (Opinion::Failed, Some(why.clone())),
        Some(Cell::Reported(reported)) => (Opinion::Failed, Some(reported.1.clone())),
        None => (Opinion::Failed, Some("an answer without a score".to_owned())),
    }
}

/// An opinion as `result.extra` shows it.
pub const fn shown(opinion: Opinion) -> Option<f64> {
    match opinion {
        Opinion::Score(score) => Some(score),
        Opinion::Abstained | Opinion::Failed => None,
    }
}

/// The one cell of a result.
pub fn cells(reduced: ReducedScore, too_few: impl FnOnce() -> String) -> Result<Cells, Failure> {
    match reduced {
        ReducedScore::Score(score) => Ok(vec![Cell::Value(score)]),
        ReducedScore::Abstained => Ok(vec![Cell::Abstained]),
        ReducedScore::Failed => Err(broken(&too_few())),
    }
}
