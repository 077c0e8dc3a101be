//! Steps of each kind of compound call for its unit.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::compound::ask::Asker;
use crate::compound::criteria;
use crate::compound::function::Compound;
use crate::compound::queue::{CompoundQueue, TakenUnit};

/// Asks until all columns of a unit are answered.
pub fn drive(queue: Arc<CompoundQueue>, unit: Arc<TakenUnit>) -> BoxFuture<'static, ()> {
    async move {
        let asker = Asker::new(&queue, &unit);
        match &queue.spec.kind {
            Compound::Criteria => criteria::ask_each(&asker).await,
            Compound::Rubric(criteria) => criteria::ask_once(&asker, *criteria).await,
        }
    }
    .boxed()
}
