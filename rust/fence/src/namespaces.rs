//! Name spaces: those that the forking process enters once, and a process name space for each
//! child.
//!
//! - Network, IPC, host name and mounts are shared by the children of one process: they are empty.
//! - A child is the first process of its name space, so all its descendants end with it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::PidfdFlags;
use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces};

use crate::identity;

/// The system call `unshare`, which needs `unsafe` in the caller; no flag here affects descriptors.
pub type Unshare = fn(UnshareFlags) -> io::Result<()>;

fn shared() -> UnshareFlags {
    UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS
}

/// Enters the name spaces that all children share. True if this needed a user name space: then a
/// fork must follow, whose child is the first process of a name space that it may administer.
pub(crate) fn enter(unshare: Unshare) -> io::Result<bool> {
    if identity::may_administer() {
        unshare(shared())?;
        return Ok(false);
    }
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    unshare(shared() | UnshareFlags::NEWUSER | UnshareFlags::NEWPID)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    Ok(true)
}

/// Makes a process name space for each child.
pub(crate) struct ProcessNames {
    /// This process, whose own name space is the parent of each child's.
    own: OwnedFd,
    unshare: Unshare,
}

impl ProcessNames {
    /// Tests once whether such name spaces can be made.
    pub(crate) fn new(unshare: Unshare) -> io::Result<Self> {
        let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
        let names = Self { own, unshare };
        names.begin()?;
        names.end()?;
        Ok(names)
    }

    /// Makes the next fork the first process of a new name space.
    pub(crate) fn begin(&self) -> io::Result<()> {
        (self.unshare)(UnshareFlags::NEWPID)
    }

    /// Makes further forks in this process's name space.
    pub(crate) fn end(&self) -> io::Result<()> {
        Ok(move_into_thread_name_spaces(self.own.as_fd(), ThreadNameSpaceType::PROCESS_ID)?)
    }
}

/// Returns whether the kernel counts the tasks of a user name space separately, as it does since
/// Linux 5.14.
pub(crate) fn count_tasks_apart() -> bool {
    let name = rustix::system::uname();
    counts_by_namespace(&name.release().to_string_lossy())
}

fn counts_by_namespace(release: &str) -> bool {
    let mut numbers = release.split(|one: char| !one.is_ascii_digit()).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return false };
    (major, minor) >= (5, 14)
}

#[cfg(test)]
mod tests {
    //! Kernels by their release.

    use super::*;

    #[test]
    fn kernels_count_by_namespace_since_5_14() {
        for release in ["5.14.0-570.el9.x86_64", "5.15.0", "6.1.0-48-amd64", "10.0"] {
            assert!(counts_by_namespace(release), "{release}");
        }
        for release in ["4.18.0-553.el8_10.x86_64", "5.4.0-216-generic", "5.10.0-46-amd64", "5.13.19", "4.4.0", "", "x"]
        {
            assert!(!counts_by_namespace(release), "{release}");
        }
    }
}
