//! Permissions of one kind of child, as its maker gives them.

use std::path::PathBuf;

use crate::layer::Layer;

/// See the module. Sizes are bytes.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Files and folders that may be read, each with all its contents. Paths that don't exist are
    /// skipped.
    pub readable: Vec<PathBuf>,
    /// Files and folders among these that other users must be able to read, otherwise children have
    /// no separate user.
    pub libraries: Vec<PathBuf>,
    /// Devices and files that may be read and written.
    pub writable: Vec<PathBuf>,
    /// Private memory in addition to that of the forking process.
    pub memory: u64,
    pub cpu_seconds: u64,
    /// Largest size of a file, and so of output that is written to one.
    pub file_size: u64,
    pub open_files: u64,
    /// Threads, and processes if they are allowed.
    pub tasks: u64,
    /// Largest size of its folder; 0 for no folder.
    pub folder_size: u64,
    pub folder_files: u64,
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
