//! The journal: each outcome of a dispatcher as a row on disk, Parquet in the end.
//!
//! - Observing a batch only pushes to a bounded queue and never waits; one thread writes.
//! - A part grows as an Arrow stream and becomes a Parquet file of the same name, which is there
//!   whole or not at all. The holder of the lock on a stream owns it.
//! - Trouble with the disk costs rows, which are counted, and never a batch.

mod config;
mod conversion;
mod extra;
mod handle;
mod layout;
mod messages;
mod part;
mod problems;
mod recovery;
mod rows;
mod shared;
mod texts;
mod writer;

pub use config::{FunctionName, JournalConfig, JournalSources};
pub use handle::Journal;
pub use recovery::{Recovery, recover};
pub use shared::Counts;
pub use texts::{Kind, TextColumn, TextSource};
