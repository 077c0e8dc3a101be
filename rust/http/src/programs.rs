//! Programs that a sandbox runs: a call is several requests, one after the other. A judge outside
//! of this crate makes each of them, and judges its answer.
//!
//! A program is kept from one attempt of its call to the next: no case is run again.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use guerdon_core::outcome::Failure;
use guerdon_core::report::Report;
use tokio::sync::oneshot;

use crate::dialect::sandbox::SandboxRun;

/// Most bytes kept of the texts of a function's programs, with their cases.
pub const MOST_BYTES: usize = 64 << 20;

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

/// The failure of a request, with its name and the number of its attempts.
pub fn failure_of(name: &str, attempts: u16, failure: Failure) -> Failure {
    let attempts = if attempts > 1 { format!(" (after {attempts} attempts)") } else { String::new() };
    Failure { reason: format!("{name}: {}{attempts}", failure.reason), ..failure }
}
