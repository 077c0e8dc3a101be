//! Who holds a share of a limit, and whether he is still alive.
//!
//! - H-1  A process is told apart from a later one with its number by the time of its start.
//! - H-2  One in another pid namespace can't be seen: its share is freed after `LEASE` in which it neither took nor gave back any.

use std::fs;

use rustix::process::{Pid, test_kill_process};

/// Longer than any call is expected to take.
const LEASE_NS: u64 = 900_000_000_000;

/// One process with a share, as it stands in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holder {
    pub pid: u64,
    /// When it started, in the system's ticks; 0 where that can't be had.
    pub started: u64,
    /// Its pid namespace; 0 where there are none.
    pub namespace: u64,
    /// Tells engines of one process apart.
    pub mark: u64,
    /// Calls under way.
    pub in_use: u64,
    /// When it last wrote.
    pub seen_ns: u64,
}

/// Numbers of a holder in a file.
pub(super) const WORDS: usize = 6;

impl Holder {
    /// This process, for one more engine.
    pub(super) fn new() -> Self {
        Self::of(std::process::id())
    }

    pub(super) fn of(pid: u32) -> Self {
        let mark = fastrand::u64(1..);
        Self { pid: pid.into(), started: start_of(pid), namespace: namespace(), mark, in_use: 0, seen_ns: 0 }
    }

    pub(super) const fn is_nobody(&self) -> bool {
        self.pid == 0
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        (self.pid, self.started, self.namespace, self.mark) == (other.pid, other.started, other.namespace, other.mark)
    }

    /// Whether it may still give back what it took (H-1, H-2), to someone in `namespace`.
    pub(super) fn is_alive(&self, namespace: u64, now_ns: u64) -> bool {
        if self.namespace != namespace {
            return now_ns.saturating_sub(self.seen_ns) < LEASE_NS;
        }
        let Ok(number) = u32::try_from(self.pid) else { return false };
        let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) else { return false };
        // Only "no such process" says so: one of another user can't be signalled, and lives.
        if test_kill_process(pid) == Err(rustix::io::Errno::SRCH) {
            return false;
        }
        let started = start_of(number);
        started == 0 || started == self.started
    }

    pub(super) const fn to_words(self) -> [u64; WORDS] {
        [self.pid, self.started, self.namespace, self.mark, self.in_use, self.seen_ns]
    }

    pub(super) const fn from_words(words: [u64; WORDS]) -> Self {
        Self {
            pid: words[0],
            started: words[1],
            namespace: words[2],
            mark: words[3],
            in_use: words[4],
            seen_ns: words[5],
        }
    }
}

/// When a process started, in ticks since boot; 0 if that can't be had, and for one that has ended and was not reaped.
fn start_of(pid: u32) -> u64 {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0 };
    // The name, in brackets, may hold anything; what follows it are numbers after one letter.
    let Some((_, rest)) = stat.rsplit_once(')') else { return 0 };
    let mut fields = rest.split_whitespace();
    match fields.next() {
        Some("Z" | "X") => u64::MAX,
        _ => fields.nth(18).and_then(|field| field.parse().ok()).unwrap_or(0),
    }
}

/// The pid namespace of this process.
pub(super) fn namespace() -> u64 {
    let link = fs::read_link("/proc/self/ns/pid").ok();
    let digits: String = link
        .iter()
        .flat_map(|link| link.to_string_lossy().chars().collect::<Vec<_>>())
        .filter(char::is_ascii_digit)
        .collect();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::started::Started;

    #[test]
    fn h1_a_holder_lives_as_long_as_its_process() {
        let here = Holder::new();
        assert!(here.is_alive(here.namespace, 0));
        let mut child = Started::from(Command::new("sleep").arg("600").spawn().unwrap());
        let there = Holder { pid: child.id().into(), started: start_of(child.id()), ..here };
        assert!(there.is_alive(here.namespace, 0));
        let earlier = Holder { started: there.started.wrapping_sub(1), ..there };
        assert_eq!(earlier.is_alive(here.namespace, 0), cfg!(not(target_os = "linux")));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!there.is_alive(here.namespace, 0));
    }

    #[test]
    fn h1_one_that_was_killed_and_not_reaped_is_dead() {
        let mut child = Started::from(Command::new("sleep").arg("600").spawn().unwrap());
        let there = Holder { pid: child.id().into(), started: start_of(child.id()), ..Holder::new() };
        child.kill().unwrap();
        if cfg!(target_os = "linux") {
            let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while there.is_alive(there.namespace, 0) && std::time::Instant::now() < until {
                std::thread::yield_now();
            }
            assert!(!there.is_alive(there.namespace, 0));
        }
        child.wait().unwrap();
    }

    #[test]
    fn h2_one_that_cannot_be_seen_has_a_lease() {
        let far = Holder { namespace: 1, seen_ns: 5, ..Holder::new() };
        assert!(far.is_alive(2, LEASE_NS));
        assert!(!far.is_alive(2, LEASE_NS + 5));
    }
}
