//! The folder that a program may write to: in memory, with a limit on bytes and on files.
//!
//! The forking process makes it in its mount name space: no other process sees it, and it
//! disappears with that process. Successive children may share it, such as a compiler and its
//! product.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};

use crate::rules::Rules;

/// Its place in the private root.
pub(crate) const PATH: &str = "/own";
const MODE: u32 = 0o700;

pub(crate) struct OwnFolder {
    options: CString,
    flags: MountFlags,
    path: PathBuf,
    /// State when it was mounted.
    fresh: State,
}

/// Properties of the folder that a program can change. The time of the last change nearly suffices,
/// but a whole program may fit between two ticks of that clock.
#[derive(Debug, PartialEq)]
struct State {
    mode: u32,
    owner: (u32, u32),
    /// Times of access, writing and change, in seconds and nanoseconds.
    times: [(i64, i64); 3],
    /// The names of its extended attributes, access lists among them.
    attributes: Vec<u8>,
}

impl State {
    fn of(folder: &Path) -> io::Result<Self> {
        let found = fs::metadata(folder)?;
        let mut names = [0; 4096];
        let length = match rustix::fs::listxattr(folder, &mut names[..]) {
            Ok(length) => length,
            Err(rustix::io::Errno::NOTSUP) => 0,
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            mode: found.mode(),
            owner: (found.uid(), found.gid()),
            times: [
                (found.atime(), found.atime_nsec()),
                (found.mtime(), found.mtime_nsec()),
                (found.ctime(), found.ctime_nsec()),
            ],
            attributes: names[..length].to_vec(),
        })
    }
}

impl OwnFolder {
    /// Mounts the folder, owned by `user` and `group`.
    pub(crate) fn new(rules: &Rules, user: u32, group: u32) -> io::Result<Self> {
        let options = format!(
            "mode={MODE:o},size={},nr_inodes={},uid={user},gid={group}",
            rules.writable_bytes,
            rules.writable_files.max(1) + 1, // the folder itself counts
        );
        let options = CString::new(options).map_err(io::Error::other)?;
        // Mounted without access times, so that reading is not a change.
        let mut flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
        if !rules.execute {
            flags |= MountFlags::NOEXEC;
        }
        let path = PathBuf::from(PATH);
        let fresh = mount(&path, flags, &options)?;
        Ok(Self { options, flags, path, fresh })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Restores the access of its user, which an earlier run of the same program may have removed.
    pub(crate) fn open_up(&self) -> io::Result<()> {
        if fs::metadata(&self.path)?.mode() & MODE != MODE {
            fs::set_permissions(&self.path, fs::Permissions::from_mode(MODE))?;
        }
        Ok(())
    }

    /// Empties the folder; true if it was mounted again. An untouched folder is only checked.
    pub(crate) fn clear(&mut self) -> io::Result<bool> {
        let unchanged = State::of(&self.path).is_ok_and(|state| state == self.fresh);
        if unchanged && fs::read_dir(&self.path).is_ok_and(|mut names| names.next().is_none()) {
            return Ok(false);
        }
        rustix::mount::unmount(&self.path, UnmountFlags::DETACH)?;
        self.fresh = mount(&self.path, self.flags, &self.options)?;
        Ok(true)
    }
}

fn mount(path: &Path, flags: MountFlags, options: &CStr) -> io::Result<State> {
    rustix::mount::mount("tmpfs", path, "tmpfs", flags, Some(options))?;
    State::of(path)
}

#[cfg(test)]
mod tests {
    //! Changes of a folder that count; nothing is mounted.

    use super::*;

    #[test]
    fn a_look_is_no_change_and_a_mode_is_one() {
        let folder = std::env::temp_dir().join(format!("guerdon-own-folder-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let fresh = State::of(&folder).unwrap();
        assert_eq!(State::of(&folder).unwrap(), fresh);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o000)).unwrap();
        let changed = State::of(&folder).unwrap();
        fs::remove_dir(&folder).unwrap();
        assert_ne!(changed, fresh);
        State::of(&folder).unwrap_err();
    }
}
