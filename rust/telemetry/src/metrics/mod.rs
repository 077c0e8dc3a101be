//! Live views of a dispatcher: metrics for Prometheus, and the live state for `guerdon top`, over
//! one small HTTP server that never takes the GIL.
//!
//! - `tallies` counts outcomes as groups complete, from the first request on.
//! - `server` serves metrics and state to the same user on a Unix socket, and metrics on TCP.
//! - The trait `Source` reads the engine; nothing here changes it.

mod families;
mod histogram;
pub mod open_sockets;
mod pages;
mod server;
mod snapshot;
mod tallies;
mod text;

pub use families::{FAMILIES, Family, Figures};
pub use server::Server;
pub use snapshot::{Call, Endpoint, Function, Identity, Snapshot, Source, State, unix_seconds};
pub use tallies::{Tallies, Tally};
pub use text::{Sample, metrics, samples};
