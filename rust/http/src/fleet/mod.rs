//! The endpoints of a function: which of them a request goes to, and what becomes of it.
//! `fleet` sends, `member` is one endpoint, `pools` has the connections to the servers behind them.
//!
//! - A request is sent through its function's `Fleet`, also where that has one endpoint.
//! - Functions that go to one server in the same way share its connections.
//! - Nothing here knows what is sent: that is a `FleetRequest`.

#[expect(clippy::module_inception, reason = "the type that the folder is named after")]
mod fleet;
mod member;
mod pools;
mod request;

pub use fleet::Fleet;
pub use member::Member;
pub use pools::Pools;
pub use request::{Failed, FleetRequest, RequestKey, SendError};
