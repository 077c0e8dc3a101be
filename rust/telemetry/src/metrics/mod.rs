//! Live views of a dispatcher: metrics for Prometheus, and the live state for `guerdon top`, over
//! one small HTTP server that needs nothing of Python.
//!
//! - `tallies` counts outcomes as groups complete, and only once a reader has asked.
//! - `server` answers: on a Unix socket everything, to the same user; on TCP the metrics alone.
//! - The engine is seen through one trait, `Source`; nothing here changes it.

mod families;
mod histogram;
pub mod open_sockets;
mod pages;
mod server;
mod snapshot;
mod tallies;
mod text;

pub use families::{FAMILIES, Family, FamilyKind, Figures};
pub use server::{Listen, NotServed, Server};
pub use snapshot::{Cache, Call, Endpoint, Function, Identity, Node, Snapshot, Source, State, Worker};
pub use tallies::{Tallies, Tally};
pub use text::{Sample, metrics, samples};
