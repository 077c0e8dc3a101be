//! Functions, batches and runtimes for tests.

use std::any::Any;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::function::{Function, FunctionId, Policy, Shape};
use guerdon_core::payload::Payload;
use guerdon_wire::sent_constants::SentConstants;

/// Arguments that contain the number of the sample, of a selectable size.
#[derive(Clone, Copy, Debug)]
pub struct Samples {
    pub bytes: usize,
}

impl Payload for Samples {
    fn encode(&self, _: FunctionId, _: bool, samples: &[u32], _: &mut SentConstants, out: &mut Vec<u8>) {
        for sample in samples {
            out.extend_from_slice(&sample.to_le_bytes());
        }
    }

    fn bytes(&self, _: FunctionId, _: u32) -> usize {
        self.bytes
    }

    fn mixes(&self, _: FunctionId) -> bool {
        true
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Arguments that panic when they are written for a worker.
#[derive(Clone, Copy, Debug)]
pub struct Unwritable;

impl Payload for Unwritable {
    fn encode(&self, _: FunctionId, _: bool, _: &[u32], _: &mut SentConstants, _: &mut Vec<u8>) {
        std::panic::resume_unwind(Box::new("by the test"));
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns the seeds of a simulation: `many` if PROPTEST_CASES is set, as by `make stress`, else
/// `few`.
#[must_use]
pub fn seeds(few: u64, many: u64) -> Range<u64> {
    0..if std::env::var_os("PROPTEST_CASES").is_some() { many } else { few }
}

/// A batch without a timeout.
#[must_use]
pub fn spec(groups: usize, group_size: usize) -> BatchSpec {
    BatchSpec::whole(groups * group_size, group_size, Box::new(Samples { bytes: 4 }))
}

/// A function of lane 0 with a timeout of 30 s, without retries, limits and a total timeout.
#[must_use]
pub fn function(name: &str, shape: Shape) -> Function {
    let policy = Policy {
        grace: Duration::from_millis(500),
        setup_timeout: Duration::from_secs(300),
        ..Policy::new(Duration::from_secs(30))
    };
    Function::new(name, shape, policy)
}

/// Runs a test on a clock that moves only when all tasks wait.
#[expect(clippy::expect_used, reason = "a test can't go on without its runtime")]
pub fn paused<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without drivers can be built").block_on(test)
}

/// Waits for a batch, at most an hour; false if it isn't done by then.
pub async fn done(batch: &Arc<Batch>) -> bool {
    let mut wait = Duration::from_millis(1);
    for _ in 0..3600 * 200 {
        if batch.is_done() {
            return true;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_millis(5));
    }
    false
}
