//! What requests cost, and a cap on it: `Price` turns tokens into money, `Spending` counts what is
//! spent and refuses what would go beyond, and `SpendingFile` keeps it for all processes of a host
//! that share a cap.

mod file;
mod ledger;
mod price;
mod spender;

pub use ledger::Reserve;
pub use price::Price;
pub use spender::{Admitted, Cap, Cost, SharedCap, Spending};
