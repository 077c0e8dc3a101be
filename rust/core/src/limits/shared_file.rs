//! A rate limiter in a file, for all processes of a host that name one key, used under a lock.
//!
//! - Calls in flight of a dead process are freed: leases are checked when no permit is left.
//! - A file of another boot or version, or with impossible contents, is started again from nothing.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::contents::{Contents, MOST_ENGINES};
use super::fairness::{SAY_AGAIN_NS, TURN_NS, WAITS_NS, least_served, served_so_far, yields_place, yields_turn_until};
use super::lease::Lease;
use super::rate_limiter::{Decision, RateLimiter, Rules, Tokens};
use crate::locked_file::{LockedFile, boot};

/// "GUERDON" and the version of the layout, which the file's name has too (`limits.py`).
const MAGIC: u64 = 0x4755_4552_444F_4E0A;
/// Number of attempts of `leave`, and the pause between them.
const LEAVE_TRIES: u32 = 200;
const LEAVE_PAUSE: Duration = Duration::from_millis(1);
/// Interval of checks whether the file was removed.
const CHECK_FILE_NS: u64 = 100_000_000;
/// Interval of checks which leases are alive.
const CHECK_LEASES_NS: u64 = 200_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct SharedFile {
    file: LockedFile,
    boot: u64,
    me: Lease,
    /// The slot of the engine's lease at the last use.
    slot: usize,
    checked_ns: Option<u64>,
    file_checked_ns: u64,
    /// Leases in the file, at the last use.
    count: usize,
    /// The beginning of its turn, if it has one.
    turn_ns: Option<u64>,
}

/// The contents of the file, under the lock; or of a limit of one function, with one lease.
#[derive(Debug)]
pub(super) struct LockedState {
    pub limiter: RateLimiter,
    leases: Vec<Lease>,
    me: usize,
    namespace: u64,
    turn_ns: Option<u64>,
    /// True if the leases are due for a check, and true if they were checked.
    check_due: bool,
    checked: bool,
    /// True if the file holds the contents as they were read.
    written: bool,
}

impl LockedState {
    pub(super) fn own() -> Self {
        Self {
            limiter: RateLimiter::default(),
            leases: vec![Lease::default()],
            me: 0,
            namespace: 0,
            turn_ns: None,
            check_due: false,
            checked: false,
            written: true,
        }
    }

    /// Requests a permit for a call of this engine, which has `in_flight`.
    pub(super) fn ask(&mut self, rules: &Rules, now_ns: u64, tokens: Tokens, in_flight: usize) -> Decision {
        if let Some(until_ns) = self.yields(rules, in_flight, now_ns) {
            return Decision::Wait { until_ns: until_ns.unwrap_or(u64::MAX), on_release: true };
        }
        self.limiter.ask(rules, now_ns, tokens, in_flight.saturating_add(self.in_flight_elsewhere()))
    }

    /// Writes into the lease whether this engine waits, for the other engines.
    pub(super) fn asked(&mut self, decision: &Decision, now_ns: u64) {
        match decision {
            Decision::Go(_) => self.serve(now_ns),
            Decision::Wait { .. } => self.wait(now_ns),
            Decision::BreakerOpen(_) | Decision::Throttled(_) => {}
        }
    }

    /// Number of calls that the other engines have in flight.
    pub(super) fn in_flight_elsewhere(&self) -> usize {
        let others = self.leases.iter().enumerate().filter(|(slot, _)| *slot != self.me);
        let all = others.map(|(_, lease)| lease.in_flight).fold(0, u64::saturating_add);
        usize::try_from(all).unwrap_or(usize::MAX)
    }

    /// Sets how many calls this engine has in flight.
    pub(super) fn set_in_flight(&mut self, in_flight: usize) {
        self.leases[self.me].in_flight = in_flight as u64;
    }

    /// Returns whether this engine, with `in_flight` calls in flight, must leave the next one to
    /// another, and until when if there is a time.
    fn yields(&mut self, rules: &Rules, in_flight: usize, now_ns: u64) -> Option<Option<u64>> {
        let most = rules.concurrency.map(|most| self.limiter.places(rules, most));
        if most.is_some_and(|most| yields_place(&self.leases, self.me, in_flight, most, now_ns)) {
            return Some(None);
        }
        if most.is_some_and(|most| self.is_turn_over(most, now_ns)) {
            return Some(None);
        }
        let due_ns = self.limiter.due_ns(rules)?;
        yields_turn_until(&self.leases, self.me, due_ns, now_ns).map(Some)
    }

    /// Returns whether this engine had its turn while another engine waits. However far ahead it
    /// is, it then yields one turn.
    fn is_turn_over(&mut self, most: usize, now_ns: u64) -> bool {
        let Some(least) = least_served(&self.leases, self.me, most, now_ns) else { return false };
        let lease = &mut self.leases[self.me];
        lease.served = lease.served.min(least.saturating_add(1));
        if lease.served <= least || self.turn_ns.is_some_and(|began_ns| now_ns < began_ns.saturating_add(TURN_NS)) {
            return false;
        }
        self.turn_ns = None;
        true
    }

    /// Records that this engine waits for a permit.
    fn wait(&mut self, now_ns: u64) {
        if !self.leases[self.me].waits(now_ns.saturating_add(SAY_AGAIN_NS)) {
            self.come(now_ns);
            self.leases[self.me].waits_until_ns = now_ns.saturating_add(WAITS_NS);
        }
    }

    /// Records that this engine gets a permit.
    fn serve(&mut self, now_ns: u64) {
        self.come(now_ns);
        self.turn_ns.get_or_insert(now_ns);
        let lease = &mut self.leases[self.me];
        (lease.waits_until_ns, lease.served) = (0, lease.served.saturating_add(1));
    }

    /// Sets the count of served calls of an engine that neither waits nor has calls in flight,
    /// since it may have been away for long.
    fn come(&mut self, now_ns: u64) {
        let lease = &self.leases[self.me];
        if lease.in_flight == 0 && !lease.waits(now_ns) {
            self.leases[self.me].served = served_so_far(&self.leases, self.me, now_ns);
        }
    }

    /// Frees the calls in flight of dead processes, if a check is due; true if any were freed.
    pub(super) fn free_expired(&mut self, now_ns: u64) -> bool {
        if !self.check_due {
            return false;
        }
        (self.check_due, self.checked) = (false, true);
        let mut freed = false;
        for (slot, lease) in self.leases.iter_mut().enumerate() {
            if slot != self.me && !lease.is_empty() && !lease.is_alive(self.namespace, now_ns) {
                freed |= lease.in_flight > 0;
                *lease = Lease::default();
            }
        }
        freed
    }
}

impl SharedFile {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            file: LockedFile::new(path),
            boot: boot(),
            me: Lease::new(),
            slot: 0,
            checked_ns: None,
            file_checked_ns: 0,
            count: 0,
            turn_ns: None,
        }
    }

    /// Calls `work` with the limiter under the lock; `None` if another process holds the lock.
    pub(super) fn with<R>(&mut self, now_ns: u64, work: impl FnOnce(&mut LockedState) -> R) -> io::Result<Option<R>> {
        let check_due = now_ns.saturating_sub(self.file_checked_ns) >= CHECK_FILE_NS;
        if check_due {
            self.file_checked_ns = now_ns;
        }
        let Some(file) = self.file.lock(check_due)? else { return Ok(None) };
        let done = self.use_locked(&file, now_ns, work);
        self.file.unlock(file)?;
        done.map(Some)
    }

    /// Gives up its slot in the file. If that fails, the slot becomes free after the process has
    /// ended.
    pub(super) fn leave(&mut self) {
        self.leave_after(|| std::thread::sleep(LEAVE_PAUSE));
    }

    /// Like `leave`; `wait` is called between two attempts.
    pub(super) fn leave_after(&mut self, mut wait: impl FnMut()) {
        for _ in 0..LEAVE_TRIES {
            if !self.file.is_open()
                || !matches!(self.with(u64::MAX, |locked| locked.leases[locked.me] = Lease::default()), Ok(None))
            {
                return;
            }
            wait();
        }
    }

    /// Sets the lease to that of another process.
    #[cfg(test)]
    pub(super) fn impersonate(&mut self, pid: u32) {
        self.me = Lease::of(pid);
    }

    fn use_locked<R>(&mut self, file: &File, now_ns: u64, work: impl FnOnce(&mut LockedState) -> R) -> io::Result<R> {
        let mut locked = self.read(file, now_ns)?;
        let (limiter, leases) = (locked.limiter.clone(), locked.leases.clone());
        let done = work(&mut locked);
        self.turn_ns = locked.turn_ns;
        if locked.checked {
            self.checked_ns = Some(now_ns);
        }
        if locked.written && locked.limiter == limiter && locked.leases == leases {
            return Ok(done);
        }
        let lease = &mut locked.leases[locked.me];
        if !lease.is_empty() {
            lease.seen_ns = now_ns;
        }
        let contents = Contents { boot: self.boot, value: locked.limiter, leases: locked.leases };
        contents.write(file, MAGIC).map(|()| done)
    }

    fn read(&mut self, file: &File, now_ns: u64) -> io::Result<LockedState> {
        let contents = Contents::<RateLimiter>::read(file, MAGIC, &mut self.count)?;
        let ours = contents.filter(|found| found.boot == self.boot && found.value.is_plausible(now_ns));
        let (mut limiter, leases) = ours.map_or_else(Default::default, |found| (found.value, found.leases));
        limiter.clamp(now_ns);
        let check_due = self.checked_ns.is_none_or(|checked_ns| now_ns.saturating_sub(checked_ns) >= CHECK_LEASES_NS);
        let (me, namespace, turn_ns) = (self.slot, self.me.namespace, self.turn_ns);
        let mut locked =
            LockedState { limiter, leases, me, namespace, turn_ns, check_due, checked: false, written: true };
        if !locked.leases.get(self.slot).is_some_and(|lease| lease.is(&self.me)) {
            locked.me = self.claim_slot(&mut locked, now_ns)?;
            self.slot = locked.me;
            locked.written = false;
        }
        Ok(locked)
    }

    /// Finds a free slot among the leases.
    fn claim_slot(&self, locked: &mut LockedState, now_ns: u64) -> io::Result<usize> {
        if locked.leases.len() >= MOST_ENGINES && !locked.leases.iter().any(Lease::is_empty) {
            locked.me = MOST_ENGINES; // none yet: all leases are checked
            locked.check_due = true;
            locked.free_expired(now_ns);
        }
        let me = self.me;
        if let Some(slot) = locked.leases.iter().position(Lease::is_empty) {
            locked.leases[slot] = me;
            return Ok(slot);
        }
        if locked.leases.len() >= MOST_ENGINES {
            return Err(io::Error::other(format!("{MOST_ENGINES} engines share {}", self.file.path().display())));
        }
        locked.leases.push(me);
        Ok(locked.leases.len() - 1)
    }
}
