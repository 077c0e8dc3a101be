//! Compound calls: one call of the scheduler that is several requests, and the score made of their
//! answers. `queue` has the calls and runs a task for each unit of them, `drive` says what a task
//! does, `ask` sends one request.
//!
//! - A unit is cancelled as a whole: when its calls are completed from outside, or at the end.
//! - Requests in flight that can't matter any more are dropped at once.
//! - No score is made of half of the answers without the rules of its function saying so.

mod ask;
mod case_rules;
mod cases;
mod drive;
mod function;
mod outputs;
mod permits;
mod queue;
mod queues;
mod unit;

pub use ask::NO_TEXTS;
pub use case_rules::CaseRules;
pub use function::{Compound, CompoundFunction};
pub use outputs::Outputs;
pub use queues::{CompoundQueues, LaneParts, requests};
