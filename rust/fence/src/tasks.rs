//! Number of tasks that a child's user may have: its own, and what the kernel counts beside them.
//!
//! - The kernel counts by user. If only children have the user, no other task counts beside them.
//! - Elsewhere the threads that this process sees are counted now and then. There may be more: on
//!   the same machine in other containers, whose user has the same number.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{Dir, Mode, OFlags, openat, statat};

/// The forking process, and the one that waits for it, count if the user is the same.
const FAMILY: u64 = 4;
/// Age of a count: a look at all processes takes longer than a fork.
const AGE: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Tasks {
    /// The machine's `/proc`, which a private root hasn't, and the user, where others share it.
    shared: Option<(OwnedFd, u32)>,
    counted: Option<(Instant, u64)>,
    unseen: u64,
}

impl Tasks {
    /// None but children have their user.
    pub(crate) fn of_children_alone() -> Self {
        Self { shared: None, counted: None, unseen: 0 }
    }

    /// Others have this user too; `proc` is the folder in which they are looked for.
    pub(crate) fn of_user(proc: OwnedFd, user: u32) -> Self {
        Self { shared: Some((proc, user)), counted: None, unseen: 0 }
    }

    pub(crate) fn are_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Leaves room for `unseen` more that are not visible here.
    pub(crate) fn leave_room(&mut self, unseen: u64) {
        self.unseen = unseen;
    }

    /// Looks at most once a second.
    pub(crate) fn count(&mut self) {
        if let Some((proc, user)) = &self.shared
            && self.counted.is_none_or(|(when, _)| when.elapsed() > AGE)
        {
            self.counted = Some((Instant::now(), threads_of(proc, *user)));
        }
    }

    /// Returns the limit of a child that may have `own` itself.
    pub(crate) fn limit(&self, own: u64) -> u64 {
        let seen = self.counted.map_or(0, |(_, tasks)| tasks);
        own.saturating_add(FAMILY).saturating_add(seen).saturating_add(self.unseen)
    }
}

/// Returns whether the kernel counts the tasks of a user name space apart from the user's others:
/// since Linux 5.14.
pub(crate) fn are_counted_by_namespace() -> bool {
    let name = rustix::system::uname();
    counts_by_namespace(&name.release().to_string_lossy())
}

fn counts_by_namespace(release: &str) -> bool {
    let mut numbers = release.split(|one: char| !one.is_ascii_digit()).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return false };
    (major, minor) >= (5, 14)
}

/// The threads of all processes of this user.
fn threads_of(proc: &OwnedFd, user: u32) -> u64 {
    let Ok(folder) = openat(proc, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) else {
        return 0;
    };
    let Ok(processes) = Dir::new(folder) else { return 0 };
    processes
        .flatten()
        .filter(|process| process.file_name().to_bytes().first().is_some_and(u8::is_ascii_digit))
        .filter(|process| {
            statat(proc, process.file_name(), rustix::fs::AtFlags::empty()).is_ok_and(|found| found.st_uid == user)
        })
        .map(|process| {
            let path = format!("{}/status", process.file_name().to_string_lossy());
            let mut text = String::new();
            if let Ok(file) = openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
                let _ = std::fs::File::from(file).read_to_string(&mut text);
            }
            let threads = text.lines().find_map(|line| line.strip_prefix("Threads:"));
            threads.and_then(|count| count.trim().parse().ok()).unwrap_or(1_u64)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    //! Tasks counted here, and the limits made of them.

    use super::*;

    fn proc() -> OwnedFd {
        rustix::fs::open("/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

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

    #[test]
    fn threads_that_are_there_are_counted() {
        let mut tasks = Tasks::of_user(proc(), rustix::process::getuid().as_raw());
        assert_eq!(tasks.limit(64), 64 + FAMILY);
        tasks.count();
        assert!(tasks.limit(64) > 64 + FAMILY, "this process is one");
        tasks.leave_room(1 << 20);
        assert!(tasks.limit(64) > 1 << 20);
        assert_eq!(threads_of(&proc(), 0x6fff_fff0), 0);
    }

    #[test]
    fn alone_nothing_is_counted() {
        let mut tasks = Tasks::of_children_alone();
        tasks.count();
        assert!(!tasks.are_shared());
        assert_eq!(tasks.limit(1), 1 + FAMILY);
        tasks.leave_room(u64::MAX);
        assert_eq!(tasks.limit(1), u64::MAX);
    }
}
