//! Configuration of a journal.

use std::path::PathBuf;
use std::sync::Arc;

use guerdon_core::clock::Clock;
use guerdon_core::outcome::Note;
use guerdon_core::settings::path;
use serde::Deserialize;

use crate::journal::texts::TextSource;

/// One function, as rows name it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionName {
    pub name: String,
    pub version: String,
    pub weight: f32,
}

/// Configuration of a journal: a `guerdon._insight.journal.plan.JournalConfig`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalConfig {
    #[serde(deserialize_with = "path")]
    pub folder: PathBuf,
    pub run: String,
    pub rank: i32,
    pub functions: Vec<FunctionName>,
    /// Columns of texts: `prompt`, `completion`, `column_…`.
    pub texts: Vec<String>,
    /// A JSON object for the metadata of each part, with facts about the dispatcher.
    pub dispatcher: String,
    /// Bytes of a stream at which the next part begins.
    pub rotate: u64,
}

/// Parts of an engine that a journal uses.
pub struct JournalSources {
    /// Returns the reason and the traceback of a note.
    pub describe: fn(Note) -> (String, Option<String>),
    /// Listener for problems, called on the writer's thread, once for each kind.
    pub on_trouble: Box<dyn Fn(&str) + Send + Sync>,
    /// The engine's clock.
    pub clock: Clock,
    /// Reader of texts, where there are columns of them.
    pub texts: Option<Arc<dyn TextSource>>,
}
