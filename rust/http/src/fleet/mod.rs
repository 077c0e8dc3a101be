//! The endpoints of a function: which of them a request goes to, and what becomes of it.
//! `fleet` sends; `balancer` chooses, by the `health` and `latency` of each endpoint; `hedging`
//! says when a request is sent twice; `addresses` looks up names; `pools` has the connections.
//!
//! - A request is sent through its function's `Fleet`, also where that has one endpoint.
//! - Functions that go to one server in the same way share its connections.
//! - This module does not depend on the content: that is a `FleetRequest`.

mod addresses;
mod balancer;
#[expect(clippy::module_inception, reason = "the type that the folder is named after")]
mod fleet;
mod health;
mod hedging;
mod latency;
mod member;
mod pools;
mod request;
#[cfg(test)]
mod tests;

pub use balancer::FleetCounts;
pub use fleet::{Fleet, FleetOptions};
pub use hedging::{HedgeAfter, Hedging};
pub use member::Member;
pub use pools::Pools;
pub use request::{FleetRequest, HedgePermit, RequestFailure, RequestKey, SendError};
