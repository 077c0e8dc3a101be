//! A mark in the environment of all processes of one zygote, by which processes that outlived the
//! zygote are found.
//!
//! A living zygote is the subreaper of its descendants and ends them; a killed one cannot. Each
//! zygote has a different mark. A process is killed by a pidfd that was opened before its
//! environment was read, so the pid can't be reused in between. A process that is just executing a
//! program has no environment for a moment and is checked again.

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};

/// The variable that holds the mark.
const VARIABLE: &str = "GUERDON_POOL";
/// Searches through the processes of this machine until one finds no marked process: a killed
/// process may just have forked, and another may not show its mark yet.
const SEARCHES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(5);

/// The mark of one zygote.
#[derive(Clone, Debug)]
pub(super) struct OrphanMarker(String);

impl OrphanMarker {
    pub(super) fn new() -> Self {
        // The pid is part of the mark, because random generators that ranks seed in the same
        // nanosecond give equal numbers.
        Self(format!("{:x}-{:016x}{:016x}", std::process::id(), fastrand::u64(..), fastrand::u64(..)))
    }

    /// Returns the variable for the zygote's environment.
    pub(super) fn variable(&self) -> (&'static str, &str) {
        (VARIABLE, &self.0)
    }

    /// Kills every process that carries the mark. Blocks for some milliseconds.
    pub(super) fn sweep(&self) {
        let mark = OsString::from(format!("{VARIABLE}={}", self.0)).into_encoded_bytes();
        for _ in 0..SEARCHES {
            let Ok(processes) = std::fs::read_dir("/proc") else { return };
            let names = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            if names.filter(|number| kill_if_marked(*number, &mark)).count() == 0 {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Kills a process if it carries the mark. Returns whether another search is needed, which is not
/// so after its end or if it is another user's.
fn kill_if_marked(number: i32, mark: &[u8]) -> bool {
    let Some(pid) = Pid::from_raw(number).filter(|_| number.cast_unsigned() != std::process::id()) else {
        return false;
    };
    let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return false };
    let Ok(environment) = std::fs::read(format!("/proc/{number}/environ")) else { return false };
    if environment.is_empty() {
        return std::fs::read_to_string(format!("/proc/{number}/stat")).is_ok_and(|stat| is_executing(&stat));
    }
    environment.split(|byte| *byte == 0).any(|variable| variable == mark)
        && rustix::process::pidfd_send_signal(pidfd, Signal::KILL).is_ok()
}

/// Returns whether a process has memory (threads of the kernel and zombies have none) but no
/// environment yet, according to its `/proc/<pid>/stat`.
fn is_executing(stat: &str) -> bool {
    // Fields come after the name, which may hold anything: the state is field 3.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok());
    let (memory, environment_end) = (field(23), field(51));
    memory.is_some_and(|bytes| bytes > 0) && environment_end == Some(0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;
    use crate::child_guard::ChildGuard;

    #[test]
    fn no_other_process_makes_the_same_mark() {
        let first = OrphanMarker::new();
        assert!(first.0.starts_with(&format!("{:x}-", std::process::id())) && first.0 != OrphanMarker::new().0);
    }

    #[test]
    fn only_marked_processes_are_killed() {
        let (ours, other) = (OrphanMarker::new(), OrphanMarker::new());
        let sleeper = |token: &OrphanMarker| {
            let (name, value) = token.variable();
            ChildGuard::from(Command::new("sleep").arg("600").env(name, value).process_group(0).spawn().unwrap())
        };
        let (mut first, mut second, mut kept) = (sleeper(&ours), sleeper(&ours), sleeper(&other));
        ours.sweep();
        assert!(!first.wait().unwrap().success() && !second.wait().unwrap().success());
        assert!(kept.try_wait().unwrap().is_none());
    }

    #[test]
    fn a_process_within_exec_differs_from_one_without_environment() {
        let stat = |memory: u64, end: u64| {
            let between = "0 ".repeat(19);
            format!("7 (a ) b) S {between}{memory} {}{end} 0", "0 ".repeat(27))
        };
        assert!(is_executing(&stat(4096, 0)));
        assert!(!is_executing(&stat(4096, 140_000)) && !is_executing(&stat(0, 0)) && !is_executing(""));
        assert!(!is_executing(&std::fs::read_to_string("/proc/self/stat").unwrap()));
    }
}
