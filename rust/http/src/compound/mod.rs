//! Compound calls: one call of the scheduler that is several requests, and the score made of their
//! answers. `queue` has the calls and runs a task for each unit of them, `drive` says what a task
//! does, `ask` sends one request.
//!
//! - A unit is cancelled as a whole: when its calls are completed from outside, or at the end.
//! - Requests in flight that can't matter any more are dropped at once.
//! - No score is made of half of the answers without the rules of its function saying so.

mod ask;
mod bradley_terry;
mod case_rules;
mod cases;
mod criteria;
mod drive;
mod early_stop;
mod function;
mod opinions;
mod outputs;
mod pairwise;
mod panel;
mod permits;
mod queue;
mod queues;
mod reduce;
mod schedule;
mod unit;
mod votes;

pub use ask::NO_TEXTS;
pub use case_rules::CaseRules;
pub use function::{Compound, CompoundFunction, CompoundMember, CompoundSpec, Pairwise, PairwiseScore};
pub use outputs::Outputs;
pub use queues::{CompoundQueues, LaneParts, requests};
pub use reduce::{Reduce, Reduction};
pub use schedule::Schedule;
