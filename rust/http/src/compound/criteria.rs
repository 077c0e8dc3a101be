//! The criteria of a rubric, each with a separate column: asked for in one request, or one after
//! the other, which begin with the same text: the server has it in its prefix cache from the second
//! on.
//!
//! - A criterion's column is completed when its answer is there: one that fails in a request of its
//!   own takes none of the others with it.
//! - An answer to all of them has a score for each, or is an error for each.

use guerdon_core::report::Report;

use crate::compound::ask::Asker;

/// A request for each criterion.
pub async fn ask_each(asker: &Asker<'_>) {
    for member in 0..asker.queue.spec.members.len() {
        let answer = asker.ask(member).await;
        let mut report = asker.used(member);
        let ended = answer.map(|scores| {
            add_reason(&mut report, scores.reasons.into_iter().next().flatten());
            scores.cells
        });
        asker.queue.answer(asker.unit, member, ended, report);
    }
}

/// One request for all criteria.
pub async fn ask_once(asker: &Asker<'_>, criteria: usize) {
    let answer = asker.ask(0).await;
    let mut used = asker.used(0);
    for column in 0..criteria {
        // The usage of the request counts once, for the first of them.
        let mut report = std::mem::take(&mut used);
        let ended = answer.as_ref().map_err(Clone::clone).map(|scores| {
            add_reason(&mut report, scores.reasons.get(column).cloned().flatten());
            scores.cells.get(column).cloned().into_iter().collect()
        });
        asker.queue.answer(asker.unit, column, ended, report);
    }
}

fn add_reason(report: &mut Report, reason: Option<String>) {
    if let Some(reason) = reason {
        report.add(0, "reason", reason);
    }
}
