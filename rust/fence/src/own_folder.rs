//! The folder that a program may write to: in memory, with a limit on bytes and on files.
//!
//! Made by the process that forks, in its own mount name space: no other process sees it, and it is
//! gone with that process. Children that follow one another may share it, a compiler and what it
//! built.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};

use crate::rules::Rules;

/// Where it is, in the private root.
pub(crate) const PATH: &str = "/own";

pub(crate) struct OwnFolder {
    options: std::ffi::CString,
    flags: MountFlags,
    path: PathBuf,
}

impl OwnFolder {
    /// Mounts it; `user` is to own it.
    pub(crate) fn new(rules: &Rules, user: u32, group: u32) -> io::Result<Self> {
        let options = format!(
            "mode=0700,size={},nr_inodes={},uid={user},gid={group}",
            rules.folder_size,
            rules.folder_files.max(1) + 1, // the folder itself counts
        );
        let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
        let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
        if !rules.execute {
            flags |= MountFlags::NOEXEC;
        }
        let folder = Self { options, flags, path: PATH.into() };
        folder.mount()?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn mount(&self) -> io::Result<()> {
        Ok(rustix::mount::mount("tmpfs", &self.path, "tmpfs", self.flags, Some(self.options.as_c_str()))?)
    }

    /// Empty again. Where nothing was written, this only looks.
    pub(crate) fn clear(&self) -> io::Result<()> {
        if fs::read_dir(&self.path)?.next().is_none() {
            return Ok(());
        }
        rustix::mount::unmount(&self.path, UnmountFlags::DETACH)?;
        self.mount()
    }
}
