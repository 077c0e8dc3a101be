//! A timeline of the engine in Perfetto's format, `TrackEvent` protobuf, written while it runs.
//!
//! - The file is a ring of slots of a fixed size, and a valid trace at any moment, whatever ends
//!   the process (`ring`).
//! - Reporting never waits: a bounded queue (`crate::queue`) keeps the order of events, and drops
//!   and counts those without room.
//! - A slice is written after its end, with begin and end in one slot. Running slices are open at
//!   the end of the file, and each write replaces them (`builder`, `recorder`).

mod batches;
mod builder;
mod encoder;
mod frame_layout;
mod item;
mod open_file;
mod packets;
mod recorder;
mod ring;
mod summary;
mod tracks;

pub use recorder::{Recorder, RecorderSources, TraceConfig};
pub use summary::Summary;
