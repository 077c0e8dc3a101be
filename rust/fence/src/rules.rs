//! Permissions of one kind of child, as its maker gives them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer};
use serde_bytes::ByteBuf;

use crate::layer::Layer;

/// See the module. Sizes are bytes. Fields that only the maker needs are ignored.
#[derive(Clone, Debug, Deserialize)]
pub struct Rules {
    /// Files and folders that may be read, each with all its contents. Paths that don't exist are
    /// skipped.
    #[serde(deserialize_with = "paths")]
    pub readable: Vec<PathBuf>,
    /// Files and folders among these that other users must be able to read, otherwise children have
    /// no separate user.
    #[serde(deserialize_with = "paths")]
    pub libraries: Vec<PathBuf>,
    /// Devices and files that may be read and written.
    #[serde(deserialize_with = "paths")]
    pub writable: Vec<PathBuf>,
    /// Private memory in addition to that of the forking process.
    pub memory_limit: u64,
    pub cpu_seconds: u64,
    /// Largest size of a file, and so of output that is written to one.
    pub file_size: u64,
    pub open_files: u64,
    /// Threads, and processes if they are allowed.
    pub tasks: u64,
    /// Largest size of its folder; 0 for no folder.
    pub writable_bytes: u64,
    pub writable_files: u64,
    /// True if other processes may be started.
    pub processes: bool,
    /// True if another program may be run in the place of this one.
    pub execute: bool,
    /// Layers to leave out, for tests of the others.
    pub without: Vec<Layer>,
}

impl Rules {
    pub(crate) fn leaves_out(&self, layer: Layer) -> bool {
        self.without.contains(&layer)
    }
}

/// Reads paths, each as the bytes that it has on the system.
fn paths<'de, D: Deserializer<'de>>(given: D) -> Result<Vec<PathBuf>, D::Error> {
    let paths: Vec<ByteBuf> = Vec::deserialize(given)?;
    Ok(paths.into_iter().map(|path| OsString::from_vec(path.into_vec()).into()).collect())
}
