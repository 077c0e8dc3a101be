//! Spending under a cap, in a file, for all processes of a host that share it, used under a lock.
//!
//! - Requests in flight of a dead process are dropped; its past spending still counts.
//! - Once no process that shares the file lives, the next one starts at 0, unless the file is
//!   `kept`: its name is then that of one run.

use std::fs::File;
use std::io;
use std::path::Path;

use super::ledger::Ledger;
use crate::limits::contents::{Contents, MOST_ENGINES};
use crate::limits::lease::Lease;
use crate::locked_file::{LockedFile, boot};

/// "GUERCOS" and the version of the layout.
const MAGIC: u64 = 0x4755_4552_434F_5303;
/// Interval of checks which leases are alive.
const CHECK_NS: u64 = 200_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct SpendingFile {
    file: LockedFile,
    kept: bool,
    boot: u64,
    me: Lease,
    /// Number of leases in the file at the last use, and the time when they were checked.
    count: usize,
    checked_ns: Option<u64>,
}

/// The contents of the file, under the lock.
pub(super) struct LockedSpending {
    pub ledger: Ledger,
    leases: Vec<Lease>,
    me: usize,
}

impl LockedSpending {
    /// Number of requests that all engines have in flight.
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
        Self { file: LockedFile::new(path), kept, boot: boot(), me: Lease::new(), count: 0, checked_ns: None }
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

    /// Gives up its lease, so that a cap that is not kept starts at 0 in the next run.
    pub(super) fn leave(&mut self, now_ns: u64) {
        if self.file.is_open() {
            // If the file is locked, the lease ends with the process.
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
        let contents = Contents { boot: self.boot, value: locked.ledger, leases: locked.leases };
        contents.write(file, MAGIC).map(|()| done)
    }

    fn read(&mut self, file: &File, now_ns: u64) -> io::Result<LockedSpending> {
        let contents = Contents::<Ledger>::read(file, MAGIC, &mut self.count)?;
        let ours = contents.filter(|found| found.value.is_plausible() && (found.boot == self.boot || self.kept));
        let (mut ledger, mut leases) = ours.map_or_else(Default::default, |found| {
            (found.value, if found.boot == self.boot { found.leases } else { Vec::new() })
        });
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
}
