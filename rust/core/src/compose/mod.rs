//! Composite functions: each of their calls requests calls of hidden functions, its members, on any
//! lane, and makes one score of their results.
//!
//! - compose-1  A member call ends once; the claim on its cell decides.
//! - compose-2  A call that ends gives up its open member calls; they never outlast its batch.
//! - Results follow from outcomes in the order of slots (draws, members), not of arrival.
//! - No lock is held while a cell is completed or a member call is requested.

mod call;
mod early_stop;
mod lane;
mod reduce;

pub use call::{Composite, Members};
pub use lane::ComposeLane;
pub use reduce::{Reduce, Reduction};
