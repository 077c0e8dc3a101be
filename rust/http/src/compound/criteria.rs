//! A rubric with a request for each criterion, one after the other: they begin with the same text,
//! which the server has in its prefix cache from the second on.
//!
//! - Each criterion has a column of its own, which is completed when its answer is there: one that
//!   fails takes none of the others with it.

use crate::compound::ask::{About, Asker};

pub async fn ask(asker: &Asker<'_>) {
    let about = About::one(asker.unit.samples[0]);
    for member in 0..asker.queue.spec.members.len() {
        let answer = asker.ask(member, about).await;
        asker.queue.answer(asker.unit, member, answer.map(|scores| scores.cells), asker.used(member));
    }
}
