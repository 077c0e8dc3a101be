//! Checks that this process may open as many connections as its functions want. Too few is an error
//! before the first request: "too many open files" in mid-batch would fail samples for no fault of
//! theirs.

use rustix::process::{Resource, getrlimit};

/// Left for everything else that will be opened: files, other connections, workers.
const SPARE: usize = 64;

/// There are not enough file descriptors left.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{needed} connections may be open at a time, but this process can open only {free} more files (its limit is {limit}, {used} are open)"
)]
pub struct TooFewDescriptors {
    pub needed: usize,
    pub free: usize,
    pub limit: usize,
    pub used: usize,
}

/// Checks that `connections` more files can be opened.
pub fn check(connections: usize) -> Result<(), TooFewDescriptors> {
    let limit =
        getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let used = std::fs::read_dir("/proc/self/fd").or_else(|_| std::fs::read_dir("/dev/fd")).map_or(0, Iterator::count);
    fits(connections, limit, used)
}

fn fits(needed: usize, limit: usize, used: usize) -> Result<(), TooFewDescriptors> {
    let free = limit.saturating_sub(used).saturating_sub(SPARE);
    if needed <= free { Ok(()) } else { Err(TooFewDescriptors { needed, free, limit, used }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_must_fit() {
        assert_eq!(fits(900, 1024, 20), Ok(()));
        assert_eq!(fits(2048, 1024, 20), Err(TooFewDescriptors { needed: 2048, free: 940, limit: 1024, used: 20 }));
        assert!(check(1).is_ok());
    }
}
