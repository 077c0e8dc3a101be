//! Composite functions: each of their calls requests calls of hidden functions, its members, on any
//! lane, and makes one score of their results, or one for each sample of a group.
//!
//! - compose-1  A member call ends once; the claim on its cell decides.
//! - compose-2  A call that ends gives up its open member calls; they never outlast its batch.
//! - compose-4  Results follow from outcomes in the order of slots, not of arrival.
//! - No lock is held while a cell is completed or a member call is requested.

mod bradley_terry;
mod composite;
mod criterion;
mod early_stop;
mod lane;
mod opinions;
mod opinions_call;
mod pairwise;
mod reduce;
mod schedule;
mod step;

pub use composite::Composite;
pub use criterion::Criterion;
pub use lane::ComposeLane;
pub use opinions::{Member, Members, Opinions};
pub use pairwise::{Pairwise, PairwiseScore};
pub use reduce::{Reduce, Reduction};
pub use schedule::Schedule;
