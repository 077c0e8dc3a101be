//! Votes: the same question several times, answered by one judge.
//!
//! - The votes that can decide it are sent together; more go out only while the result is open.
//! - Votes that can't change the result any more are cancelled, or never sent (compound-1).

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use guerdon_core::outcome::Failure;
use guerdon_core::report::Report;

use crate::compound::ask::{Asker, RequestSubject};
use crate::compound::early_stop::{is_decided, worth_sending};
use crate::compound::opinions::{cells, opinion, shown};
use crate::compound::reduce::{Opinion, Reduction, agreement_of};
use crate::compound::unit::Cells;

pub async fn ask(asker: &Asker<'_>, votes: usize, rules: &Reduction) -> (Result<Cells, Failure>, Report) {
    let about = RequestSubject::one(asker.unit.samples[0]);
    let (mut opinions, mut last_error) = (Vec::with_capacity(votes), None);
    let mut sent = 0;
    let mut under_way = FuturesUnordered::new();
    while !is_decided(rules, &opinions, votes - opinions.len()) {
        if under_way.is_empty() {
            let more = worth_sending(rules, &opinions, votes - sent);
            under_way.extend((0..more).map(|_| asker.ask(0, about)));
            sent += more;
        }
        let Some(answer) = under_way.next().await else { break };
        let (opinion, why) = opinion(&answer);
        last_error = why.or(last_error);
        opinions.push(opinion);
    }
    drop(under_way);
    let failed = opinions.iter().filter(|one| **one == Opinion::Failed).count();
    let mut report = Report { incomplete: failed > 0, ..Report::default() };
    report.add(0, "votes", opinions.iter().copied().map(shown).collect::<Vec<_>>());
    report.add(0, "agreement", agreement_of(&opinions));
    let ended = cells(rules.reduced(&opinions), || {
        let why = last_error.unwrap_or_default();
        format!("{failed} of {votes} votes failed, and {} scores are needed; the last: {why}", rules.needed)
    });
    (ended, report)
}
