//! The journal: each outcome of a dispatcher as a row on disk, Parquet in the end.
//!
//! - What observes batches only pushes to a bounded queue; one thread writes. Nobody waits for it.
//! - A part grows as an Arrow stream and becomes a Parquet file of the same name, which is there
//!   whole or not at all. Whoever holds the lock on a stream owns it.
//! - Trouble with the disk costs rows, which are counted, and never a batch.

#![forbid(unsafe_code)]

mod conversion;
mod extra;
mod journal;
mod layout;
mod messages;
mod part;
mod queue;
mod recovery;
mod rows;
mod shared;
mod texts;
mod trouble;
mod writer;

pub use journal::{Journal, JournalConfig};
pub use recovery::{Recovered, recover};
pub use rows::FunctionName;
pub use shared::Counts;
pub use texts::{Kind, TextColumn, TextSource};
