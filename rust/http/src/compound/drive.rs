//! Steps of each kind of compound call for its unit.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::compound::ask::Asker;
use crate::compound::cases;
use crate::compound::function::Compound;
use crate::compound::queue::{CompoundQueue, TakenUnit};

/// Asks until all columns of a unit are answered.
pub fn drive(queue: Arc<CompoundQueue>, unit: Arc<TakenUnit>) -> BoxFuture<'static, ()> {
    async move {
        let asker = Asker::new(&queue, &unit);
        let Compound::Cases(rules) = &queue.spec.kind;
        let (ended, mut report) = cases::ask(&asker, rules).await;
        (0..queue.spec.members.len()).for_each(|member| report.merge(asker.used(member)));
        queue.answer(&unit, 0, ended, report);
    }
    .boxed()
}
