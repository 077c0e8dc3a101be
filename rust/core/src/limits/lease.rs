//! Leases: how many calls of a limit each engine has in flight, and whether its process is alive.
//!
//! - The start time distinguishes a process from a later one with its pid.
//! - A process of another pid namespace is invisible: its lease expires after `LEASE_NS` in which
//!   it neither took nor released a permit.

use std::fs;

use rustix::process::{Pid, test_kill_process};

use crate::words::words_of;

/// Longer than any call is expected to take.
const LEASE_NS: u64 = 900_000_000_000;

/// More than any engine's claim lasts.
const WAITS_LONGEST_NS: u64 = 10_000_000_000;

/// One engine with calls in flight, as the file has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lease {
    pub pid: u64,
    /// The start of the process, in the system's ticks; 0 if it can't be read.
    pub started: u64,
    /// Its pid namespace; 0 where there are none.
    pub namespace: u64,
    /// Number that distinguishes the engines of one process.
    pub engine: u64,
    /// Calls in flight.
    pub in_flight: u64,
    /// The clock at its last write.
    pub seen_ns: u64,
    /// The time until which it claims to wait for a permit.
    pub waits_until_ns: u64,
    /// Number of permits. An idle engine's count rises to the least one of the engines that wait or
    /// have calls in flight.
    pub served: u64,
}

impl Lease {
    /// Makes a lease of this process for one more engine.
    pub(crate) fn new() -> Self {
        Self::of(std::process::id())
    }

    pub(crate) fn of(pid: u32) -> Self {
        let engine = fastrand::u64(1..);
        let (started, namespace) = (start_of(pid), namespace());
        Self { pid: pid.into(), started, namespace, engine, ..Self::default() }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.pid == 0
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.pid, self.started, self.namespace, self.engine)
            == (other.pid, other.started, other.namespace, other.engine)
    }

    /// Returns whether it waits for a permit; a time that is too far ahead comes from another
    /// clock.
    pub(super) const fn waits(&self, now_ns: u64) -> bool {
        self.waits_until_ns > now_ns && self.waits_until_ns - now_ns <= WAITS_LONGEST_NS
    }

    /// Returns whether its process, seen from `namespace`, may still release its permits.
    pub(crate) fn is_alive(&self, namespace: u64, now_ns: u64) -> bool {
        if self.namespace != namespace {
            return now_ns.saturating_sub(self.seen_ns) < LEASE_NS;
        }
        let Ok(number) = u32::try_from(self.pid) else { return false };
        let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) else { return false };
        // Only ESRCH is evidence of that: a process of another user can't be signalled, and is
        // alive.
        if test_kill_process(pid) == Err(rustix::io::Errno::SRCH) {
            return false;
        }
        let started = start_of(number);
        started == 0 || started == self.started
    }
}

words_of!(Lease: pid, started, namespace, engine, in_flight, seen_ns, waits_until_ns, served);

/// The start of a process, in ticks since boot; 0 if it can't be read, and for a process that has
/// ended and was not reaped.
fn start_of(pid: u32) -> u64 {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0 };
    // The name, in brackets, may hold any characters; after it come a letter and then numbers.
    let Some((_, rest)) = stat.rsplit_once(')') else { return 0 };
    let mut fields = rest.split_whitespace();
    match fields.next() {
        Some("Z" | "X") => u64::MAX,
        _ => fields.nth(18).and_then(|field| field.parse().ok()).unwrap_or(0),
    }
}

/// The pid namespace of this process.
pub(crate) fn namespace() -> u64 {
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

    #[test]
    fn a_lease_lives_as_long_as_its_process() {
        let here = Lease::new();
        assert!(here.is_alive(here.namespace, 0));
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let there = Lease { pid: child.id().into(), started: start_of(child.id()), ..here };
        assert!(there.is_alive(here.namespace, 0));
        let earlier = Lease { started: there.started.wrapping_sub(1), ..there };
        assert_eq!(earlier.is_alive(here.namespace, 0), cfg!(not(target_os = "linux")));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!there.is_alive(here.namespace, 0));
    }

    #[test]
    fn a_zombie_holds_no_lease() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let there = Lease { pid: child.id().into(), started: start_of(child.id()), ..Lease::new() };
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
    fn a_process_of_another_namespace_is_trusted_for_a_while() {
        let far = Lease { namespace: 1, seen_ns: 5, ..Lease::new() };
        assert!(far.is_alive(2, LEASE_NS));
        assert!(!far.is_alive(2, LEASE_NS + 5));
    }
}
