//! A timeline of the engine in Perfetto's format, `TrackEvent` protobuf, written while it runs.
//!
//! - The file is a ring of slots of a fixed size, and a valid trace at any moment, whatever ends
//!   the process (`ring`).
//! - A reporting thread never waits: events go into a bounded queue (`crate::queue`), where those
//!   without room are dropped and counted. The rest comes out in the order of the reports.
//! - A slice is written when it ended, begin and end in one slot; running slices are open at the
//!   end of the file and are replaced with each write (`builder`, `recorder`).

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
