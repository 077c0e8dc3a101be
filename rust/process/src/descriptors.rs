//! The trainer's file descriptors, of which a worker takes five. The soft limit is raised as far as
//! the workers need, and some descriptors are left to the trainer.

use std::io;
use std::os::fd::AsRawFd;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for each worker: those of two workers while one replaces the other, and those of a
/// batch.
const A_WORKER: u64 = 12;
/// Descriptors for everything else in this process.
const OTHERS: u64 = 1024;
/// Descriptors that workers leave to the trainer, if the limit allows.
const LEFT: u64 = 128;

/// Raises the soft limit on open files towards the hard one, if `workers` workers need it.
pub(super) fn raise_limit(workers: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let needed = (workers as u64).saturating_mul(A_WORKER).saturating_add(OTHERS);
    let wanted = maximum.map_or(needed, |most| needed.min(most));
    if current.is_some_and(|limit| limit < wanted) {
        // If that fails, fewer workers start, which is then reported.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

/// Fails if another worker would leave the trainer too few descriptors.
pub(super) fn keep_some() -> io::Result<()> {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Ok(()) };
    // The lowest free descriptor: all below it are taken.
    let lowest = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3).map_err(io::Error::from);
    let lowest = match lowest {
        Ok(fd) => u64::try_from(fd.as_raw_fd()).unwrap_or(0),
        Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => return Err(error),
        Err(_) => return Ok(()), // standard input is closed
    };
    if lowest + LEFT.min(limit / 8) >= limit { Err(Errno::MFILE.into()) } else { Ok(()) }
}

/// Returns advice on the exhausted resource, found in the text of a start's error.
pub(super) fn advice(why: &str) -> &'static str {
    let is = |errno: Errno| why.contains(&format!("os error {}", errno.raw_os_error()));
    if is(Errno::MFILE) || is(Errno::NFILE) {
        "Out of file descriptors: raise the limit on open files (`ulimit -n`), or set a smaller `workers`"
    } else if is(Errno::AGAIN) {
        "Out of processes: raise the limit on processes (`ulimit -u`, or the container's `pids.max`), or set a smaller \
         `workers`"
    } else if is(Errno::NOMEM) || why.contains("SIGKILL") {
        "Out of memory: raise the container's limit on memory, or set a smaller `workers`"
    } else {
        "Set a smaller `workers` if this machine has no room for more"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_names_what_ran_out() {
        for (errno, what) in
            [(Errno::MFILE, "`ulimit -n`"), (Errno::AGAIN, "`pids.max`"), (Errno::NOMEM, "limit on memory")]
        {
            let why = io::Error::from(errno).to_string();
            assert!(advice(&why).contains(what), "{why}");
        }
        assert!(advice("a worker was killed by SIGKILL (out of memory?) before it was ready").contains("memory"));
    }

    #[test]
    fn the_soft_limit_is_raised_no_further_than_needed() {
        let before = getrlimit(Resource::Nofile);
        raise_limit(1);
        let after = getrlimit(Resource::Nofile);
        assert_eq!(after.maximum, before.maximum);
        assert!(after.current >= before.current);
        assert!(keep_some().is_ok(), "a test has descriptors left");
    }
}
