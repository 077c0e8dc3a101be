//! A panel: several judges on one sample, each at its own endpoint, all at once.
//!
//! - A member that fails leaves the panel only where `needed` allows it: the others' score never
//!   replaces the whole panel's unless that is asked for (`result.extra` has a field a member).
//! - Once too many have failed the others are cancelled.

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use guerdon_core::outcome::Failure;
use guerdon_core::report::Report;

use crate::compound::ask::{Asker, RequestSubject};
use crate::compound::opinions::{cells, opinion, shown};
use crate::compound::reduce::{Opinion, Reduction};
use crate::compound::unit::Cells;

pub async fn ask(asker: &Asker<'_>, rules: &Reduction) -> (Result<Cells, Failure>, Report) {
    let (members, about) = (&asker.queue.spec.members, RequestSubject::one(asker.unit.samples[0]));
    let mut opinions = vec![None; members.len()];
    let mut failures = Vec::new();
    let asked = |member| asker.ask(member, about).map(move |answer| (member, answer));
    let mut under_way: FuturesUnordered<_> = (0..members.len()).map(asked).collect();
    while let Some((member, answer)) = under_way.next().await {
        let (opinion, why) = opinion(&answer);
        opinions[member] = Some(opinion);
        failures.extend(why.map(|why| format!("{}: {why}", members[member].name)));
        // All that are left may give scores.
        if members.len() - failures.len() < rules.needed {
            break;
        }
    }
    drop(under_way);
    let opinions: Vec<Opinion> = opinions.into_iter().map(|one| one.unwrap_or(Opinion::Failed)).collect();
    let mut report = Report { incomplete: !failures.is_empty(), ..Report::default() };
    for (place, (member, opinion)) in members.iter().zip(&opinions).enumerate() {
        report.add(0, member.name.clone(), shown(*opinion));
        let used = asker.used(place);
        report.usage += used.usage;
        for (sample, (field, value)) in used.extra {
            report.add(sample, format!("{}/{field}", member.name), value);
        }
    }
    let ended = cells(rules.reduced(&opinions), || {
        format!("of {} members {} must give a score; {}", members.len(), rules.needed, failures.join("; "))
    });
    (ended, report)
}
