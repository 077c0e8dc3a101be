//! The journal: each outcome of a dispatcher as a row on disk, in Parquet files.
//!
//! - Reporting a group pushes it to a bounded queue and never waits; one thread writes.
//! - A part grows as an Arrow stream and becomes a Parquet file of the same name, which is complete
//!   or does not exist. The holder of the lock on a stream owns it.
//! - Rows that the disk refuses are dropped and counted. Batches go on.

mod config;
mod conversion;
mod extra;
mod handle;
mod layout;
mod messages;
mod parquet_file;
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
