//! Temporary folders for tests.

use std::io;
use std::path::PathBuf;

/// The path of a folder that is removed on drop.
pub struct TempFolder(pub PathBuf);

impl TempFolder {
    /// Returns a path at which nothing exists yet.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "no two are alike")]
    pub fn new() -> Self {
        Self(std::env::temp_dir().join(format!("guerdon-test-{:016x}", fastrand::u64(..))))
    }

    /// Creates an empty folder.
    pub fn create() -> io::Result<Self> {
        let folder = Self::new();
        std::fs::create_dir(&folder.0)?;
        Ok(folder)
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
