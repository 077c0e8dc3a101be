//! A judge and its fallback: each member is asked once the one before has failed.
//!
//! - A member has failed after its own retries, or while the circuit breaker of its limit is open.
//!   Nobody waits for that to close: calls that come meanwhile try it.
//! - The reasons of those that failed go into `result.extra`, or into the error if all did.

use guerdon_core::outcome::{Cell, Failure};
use guerdon_core::report::Report;

use crate::compound::ask::{Asker, RequestSubject};
use crate::compound::unit::{Cells, broken};
use crate::response::Scores;

pub async fn ask(asker: &Asker<'_>) -> (Result<Cells, Failure>, Report) {
    let about = RequestSubject::one(asker.unit.samples[0]);
    let (mut report, mut failures) = (Report::default(), Vec::new());
    for (place, member) in asker.queue.spec.members.iter().enumerate() {
        let answer = asker.ask(place, about).await;
        let used = asker.used(place);
        report.usage += used.usage;
        match cell(answer) {
            Ok(cell) => {
                report.extra.extend(used.extra);
                if !failures.is_empty() {
                    report.incomplete = true;
                    report.add(0, "by", member.name.clone());
                    report.add(0, "failed", failures.join("; "));
                }
                return (Ok(vec![cell]), report);
            }
            Err(why) => failures.push(format!("{}: {why}", member.name)),
        }
    }
    (Err(broken(&failures.join("; "))), report)
}

/// The cell of an answer about one sample, or the reason why it has none.
fn cell(answer: Result<Scores, Failure>) -> Result<Cell, String> {
    match answer.map_err(|failure| failure.reason)?.cells.into_iter().next() {
        Some(Cell::Invalid(why)) => Err(why),
        Some(Cell::Reported(reported)) => Err(reported.1),
        Some(cell) => Ok(cell),
        None => Err("an answer without a score".to_owned()),
    }
}
