//! A mark in the environment of all processes of one stem, by which those are found that outlived it.
//!
//! While a stem lives its descendants are its own: it is their subreaper and ends them. One that was killed can't; its workers end with it, but not
//! what they started. Whatever was forked or executed below the stem carries the mark, unless its environment was replaced on the way.
//!
//! - T-1  Each stem has a mark of its own: nothing of its successor is mistaken for its leavings.
//! - T-2  A process is killed by a pidfd that was opened before its environment was read: its number can't have become another's.

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};

/// The variable that holds the mark.
const VARIABLE: &str = "GUERDON_POOL";
/// Looks at the processes of this machine, until one finds nothing; what is killed may just have forked.
const LOOKS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(5);

/// The mark of one stem.
#[derive(Clone, Debug)]
pub(super) struct Token(String);

impl Token {
    pub(super) fn new() -> Self {
        // The number of this process too: generators that ranks seed in the same nanosecond, by time, draw the same (T-1).
        Self(format!("{:x}-{:016x}{:016x}", std::process::id(), fastrand::u64(..), fastrand::u64(..)))
    }

    /// What the stem's environment shall hold.
    pub(super) fn variable(&self) -> (&'static str, &str) {
        (VARIABLE, &self.0)
    }

    /// Kills every process that carries the mark. Blocks for some milliseconds.
    pub(super) fn sweep(&self) {
        let mark = OsString::from(format!("{VARIABLE}={}", self.0)).into_encoded_bytes();
        for _ in 0..LOOKS {
            let Ok(processes) = std::fs::read_dir("/proc") else { return };
            let names = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            if names.filter(|number| kill_if_marked(*number, &mark)).count() == 0 {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Whether the process is a marked one, which is killed then; not one that has ended, nor one of another user.
fn kill_if_marked(number: i32, mark: &[u8]) -> bool {
    let Some(pid) = Pid::from_raw(number).filter(|_| number.cast_unsigned() != std::process::id()) else {
        return false;
    };
    let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return false };
    let Ok(environment) = std::fs::read(format!("/proc/{number}/environ")) else { return false };
    environment.split(|byte| *byte == 0).any(|variable| variable == mark)
        && rustix::process::pidfd_send_signal(pidfd, Signal::KILL).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn t1_no_other_process_makes_the_same_mark() {
        let first = Token::new();
        assert!(first.0.starts_with(&format!("{:x}-", std::process::id())) && first.0 != Token::new().0);
    }

    #[test]
    fn t1_what_carries_the_mark_is_killed_and_nothing_else() {
        let (ours, other) = (Token::new(), Token::new());
        let sleeper = |token: &Token| {
            let (name, value) = token.variable();
            Command::new("sleep").arg("600").env(name, value).process_group(0).spawn().unwrap()
        };
        let (mut first, mut second, mut kept) = (sleeper(&ours), sleeper(&ours), sleeper(&other));
        ours.sweep();
        assert!(!first.wait().unwrap().success() && !second.wait().unwrap().success());
        assert!(kept.try_wait().unwrap().is_none());
        kept.kill().unwrap();
        kept.wait().unwrap();
    }
}
