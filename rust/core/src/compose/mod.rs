//! Composite functions: each of their calls asks for calls of hidden functions, its members, on any
//! lane, and makes one score of their results.
//!
//! - compose-1  A member call ends once; the claim on its cell decides.
//! - compose-2  A composite's call gives up its open member calls before it ends; one that was ended
//!   from outside does right afterwards.
//! - compose-3  Results follow from outcomes in the order of slots (draws, members), not of arrival.
//! - compose-4  Votes stop only where every way in which the rest may end, failures and abstentions
//!   among them, gives the same result.
//! - No lock is held while a cell is completed or a member call is asked for.

mod call;
mod early_stop;
mod lane;
mod reduce;

pub use call::{Composite, Members};
pub use lane::ComposeLane;
pub use reduce::{Reduce, Reduction};
