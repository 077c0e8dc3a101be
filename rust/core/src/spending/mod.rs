//! Costs of requests, and a cap on them: `Price` turns tokens into money, `Spending` counts it and
//! refuses requests beyond the cap, and `SpendingFile` keeps it for all processes of a host that
//! share a cap.

mod file;
mod ledger;
mod price;
mod spender;

pub use ledger::Reserve;
pub use price::Price;
pub use spender::{Admission, Cap, Cost, SharedCap, Spending};
