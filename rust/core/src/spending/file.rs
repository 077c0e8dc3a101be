//! Spending under a cap, in a file, for all processes of a host that share it, used under a lock.
//! Layout: `u64` magic, boot, checksum, 5 of the ledger, number of leases, 8 per lease.
//!
//! - Requests in flight of a dead process are forgotten; what it had spent counts.
//! - Once no process that shares it lives, the next one starts at 0, unless the file is `kept`: it
//!   is then of one run by its name.

use std::fs::File;
use std::io;
use std::path::Path;

use super::ledger::Ledger;
use crate::limits::lease::{self, Lease};
use crate::locked_file::{LockedFile, boot, checksum, words, write};

/// "GUERCOS" and the version of the layout.
const MAGIC: u64 = 0x4755_4552_434F_5303;
const HEAD: usize = 9;
/// Engines that can share a cap.
const MOST_ENGINES: usize = 1024;
/// Between two looks which leases are alive.
const CHECK_NS: u64 = 200_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct SpendingFile {
    file: LockedFile,
    kept: bool,
    boot: u64,
    me: Lease,
    /// When leases were looked at.
    checked_ns: Option<u64>,
}

/// The contents of the file, under the lock.
pub(super) struct LockedSpending {
    pub ledger: Ledger,
    leases: Vec<Lease>,
    me: usize,
}

impl LockedSpending {
    /// Requests in flight of all engines.
    pub(super) fn in_flight(&self) -> u64 {
        self.leases.iter().map(|lease| lease.in_flight).fold(0, u64::saturating_add)
    }

    /// Sets how many requests this engine has in flight.
    pub(super) fn set_in_flight(&mut self, in_flight: u64) {
        self.leases[self.me].in_flight = in_flight;
    }
}

impl SpendingFile {
    pub(super) fn new(path: &Path, kept: bool) -> Self {
        Self { file: LockedFile::new(path), kept, boot: boot(), me: Lease::new(), checked_ns: None }
    }

    /// Passes the content to `work`, under the lock; `None` if another process has it just now.
    pub(super) fn with<R>(
        &mut self,
        now_ns: u64,
        work: impl FnOnce(&mut LockedSpending) -> R,
    ) -> io::Result<Option<R>> {
        let Some(file) = self.file.lock(true)? else { return Ok(None) };
        let done = self.use_locked(&file, now_ns, work);
        self.file.unlock(file)?;
        done.map(Some)
    }

    /// Gives up its lease, so that a cap that is not kept starts anew with the next run.
    pub(super) fn leave(&mut self, now_ns: u64) {
        if self.file.is_open() {
            // The lease ends with the process if the lock is taken.
            let _ = self.with(now_ns, |locked| locked.leases[locked.me] = Lease::default());
        }
    }

    fn use_locked<R>(
        &mut self,
        file: &File,
        now_ns: u64,
        work: impl FnOnce(&mut LockedSpending) -> R,
    ) -> io::Result<R> {
        let mut locked = self.read(file, now_ns)?;
        let done = work(&mut locked);
        let lease = &mut locked.leases[locked.me];
        if !lease.is_empty() {
            lease.seen_ns = now_ns;
        }
        let Ledger { spent, known, guessed, unknown, largest } = locked.ledger;
        let leases = locked.leases.iter().flat_map(|lease| lease.to_words());
        let ledger =
            [spent.to_bits(), known, guessed.to_bits(), unknown, largest.to_bits(), locked.leases.len() as u64];
        let numbers: Vec<u64> = ledger.into_iter().chain(leases).collect();
        write(file, MAGIC, self.boot, &numbers)?;
        Ok(done)
    }

    fn read(&mut self, file: &File, now_ns: u64) -> io::Result<LockedSpending> {
        let (mut ledger, mut leases) = self.stored(&words(file, 0, HEAD + MOST_ENGINES * lease::WORDS)?);
        let known = leases.iter().any(|lease| lease.is(&self.me));
        if !known || self.checked_ns.is_none_or(|checked_ns| now_ns.saturating_sub(checked_ns) >= CHECK_NS) {
            self.checked_ns = Some(now_ns);
            let (me, namespace) = (self.me, self.me.namespace);
            leases.retain(|lease| !lease.is_empty() && (lease.is(&me) || lease.is_alive(namespace, now_ns)));
        }
        if !known {
            if leases.len() >= MOST_ENGINES {
                return Err(io::Error::other(format!("{MOST_ENGINES} engines share {}", self.file.path().display())));
            }
            if leases.is_empty() && !self.kept {
                ledger = Ledger::default();
            }
            leases.push(self.me);
        }
        let me = leases.iter().position(|lease| lease.is(&self.me)).unwrap_or(0);
        Ok(LockedSpending { ledger, leases, me })
    }

    /// Returns the content of the file: nothing, where it is of another boot or version, or was not
    /// written as a whole.
    fn stored(&self, all: &[u64]) -> (Ledger, Vec<Lease>) {
        let Some(([MAGIC, boot, wanted], rest)) = all.split_first_chunk::<3>() else { return Default::default() };
        let Some(count) = rest.get(5).and_then(|count| usize::try_from(*count).ok()) else { return Default::default() };
        let Some(numbers) = count.checked_mul(lease::WORDS).and_then(|words| rest.get(..words.checked_add(6)?)) else {
            return Default::default();
        };
        let ([spent, known, guessed, unknown, largest, _], rest) =
            numbers.split_first_chunk::<6>().unwrap_or((&[0; 6], &[]));
        let cost = |bits: &u64| f64::from_bits(*bits);
        let ledger = Ledger {
            spent: cost(spent),
            known: *known,
            guessed: cost(guessed),
            unknown: *unknown,
            largest: cost(largest),
        };
        if *wanted != checksum(numbers) || !ledger.is_plausible() || (*boot != self.boot && !self.kept) {
            return Default::default();
        }
        let (leases, _) = rest.as_chunks::<{ lease::WORDS }>();
        let leases = leases.iter().map(|words| Lease::from_words(*words));
        (ledger, if *boot == self.boot { leases.collect() } else { Vec::new() })
    }
}
