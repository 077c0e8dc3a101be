//! Programs that a sandbox runs: a call is several requests, one after the other. A judge outside
//! of this crate makes each of them, and judges its answer.
//!
//! - A program is kept from one attempt of its call to the next: no case is run again.
//! - None is kept longer than its batch.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use guerdon_core::batch::Batch;
use guerdon_core::outcome::Failure;
use guerdon_core::report::Report;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::dialect::sandbox::SandboxRun;

/// A program that its judge has begun to judge.
pub type BegunProgram = Box<dyn Any + Send + Sync>;

/// A program for its judge: the values of a call, as JSON, or one that was begun.
pub enum Program {
    New(String),
    Begun(BegunProgram),
}

/// A question to a judge: the next step of a program, after this run of it.
pub struct ProgramQuestion {
    pub program: Program,
    /// Result of the request that the judge made last; none if that has to be made again.
    pub run: Option<SandboxRun>,
    /// Dropped if the judge has ended.
    pub answer: oneshot::Sender<ProgramStep>,
}

/// Next step of a program.
pub enum ProgramStep {
    /// A request: its body, and its name in reasons.
    Send {
        program: BegunProgram,
        body: Vec<u8>,
        name: String,
    },
    Judged {
        score: f64,
        report: Report,
    },
    /// A failure that is not retried.
    Failed(String),
}

/// Passes a question on to a judge.
#[derive(Clone)]
pub struct ProgramJudge(pub Arc<dyn Fn(ProgramQuestion) + Send + Sync>);

impl fmt::Debug for ProgramJudge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ProgramJudge")
    }
}

impl ProgramJudge {
    /// Asks for the next step of a program.
    pub async fn next(&self, program: Program, run: Option<SandboxRun>) -> ProgramStep {
        let (answer, answered) = oneshot::channel();
        (self.0)(ProgramQuestion { program, run, answer });
        answered.await.unwrap_or_else(|_| ProgramStep::Failed("the judge of its program has ended".to_owned()))
    }
}

/// A program whose batch is not done, and how often its present request has failed.
type KeptProgram = (Weak<Batch>, BegunProgram, u16);

/// Programs whose calls may be tried again. Written by requests that fail and that repeat them, and
/// by the watchdog.
#[derive(Default)]
pub struct KeptPrograms(Mutex<BTreeMap<(u64, usize), KeptProgram>>);

impl KeptPrograms {
    /// Keeps a program whose request has failed so often, by batch and sample.
    pub fn keep(&self, batch: &Arc<Batch>, sample: usize, program: BegunProgram, failed: u16) {
        let before = self.0.lock().insert((batch.id(), sample), (Arc::downgrade(batch), program, failed));
        drop(before);
    }

    /// A program that was kept, and how often its request has failed.
    pub fn take(&self, batch: u64, sample: usize) -> Option<(BegunProgram, u16)> {
        self.0.lock().remove(&(batch, sample)).map(|(_, program, failed)| (program, failed))
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Drops those of batches that are done; returns whether any is left.
    pub fn drop_ended(&self) -> bool {
        let ended: Vec<KeptProgram> = {
            let mut kept = self.0.lock();
            let is_done = |batch: &Weak<Batch>| batch.upgrade().is_none_or(|batch| batch.is_done());
            kept.extract_if(.., |_, (batch, ..)| is_done(batch)).map(|(_, program)| program).collect()
        };
        drop(ended);
        !self.is_empty()
    }
}

/// The failure of a request, with its name and the number of its attempts.
pub fn failure_of(name: &str, attempts: u16, failure: Failure) -> Failure {
    let attempts = if attempts > 1 { format!(" (after {attempts} attempts)") } else { String::new() };
    Failure { reason: format!("{name}: {}{attempts}", failure.reason), ..failure }
}
