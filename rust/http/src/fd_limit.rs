//! Checks that this process may open the connections that its functions need, and raises its soft
//! limit on open files as far as necessary.
//!
//! - At the start a shortage is an error: "too many open files" in mid-batch would fail samples
//!   without their fault.
//! - Endpoints that come at run time are checked again, and reported once: requests wait for
//!   connections that others leave.

use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Left for everything else that will be opened: files, other connections, workers.
const SPARE: usize = 64;

/// There are not enough file descriptors left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{needed} connections may be open at a time, but this process can open only {free} more files (its limit is {limit}, {used} are open)"
)]
pub struct TooFewDescriptors {
    pub needed: usize,
    pub free: usize,
    pub limit: usize,
    /// Files that are open beside those connections.
    pub used: usize,
}

type Listener = Box<dyn Fn(&TooFewDescriptors) + Send + Sync>;

/// The descriptors that the connections of all functions of a lane need.
pub struct Descriptors {
    needs: Mutex<Needs>,
    listener: OnceLock<Listener>,
}

/// Written by `check` and `change`.
struct Needs {
    /// Connections that may be open at a time, as things are.
    connections: usize,
    /// Largest number that was checked; None before the first.
    checked: Option<usize>,
    /// Files that were open before there was any connection.
    others: usize,
    warned: bool,
}

impl Descriptors {
    /// Makes one for `connections` connections, unchecked.
    pub fn new(connections: usize) -> Self {
        let needs = Needs { connections, checked: None, others: 0, warned: false };
        Self { needs: Mutex::new(needs), listener: OnceLock::new() }
    }

    /// Returns the number of connections that may be open at a time.
    pub fn connections(&self) -> usize {
        self.needs.lock().connections
    }

    /// Checks the need at the start, before there is any connection.
    pub fn check(&self) -> Result<(), TooFewDescriptors> {
        let mut needs = self.needs.lock();
        (needs.checked, needs.others) = (Some(needs.connections), open_files());
        if needs.connections == 0 {
            return Ok(());
        }
        make_room(needs.connections, needs.others)
    }

    /// Sets the listener for a shortage caused by new endpoints. Only the first one counts.
    pub fn on_shortage(&self, listener: impl Fn(&TooFewDescriptors) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// The endpoints of a function have changed, which needed `before` connections.
    pub fn change(&self, before: usize, now: usize) {
        let shortage = {
            let mut needs = self.needs.lock();
            needs.connections = (needs.connections + now).saturating_sub(before);
            let Some(checked) = needs.checked.filter(|checked| needs.connections > *checked) else { return };
            needs.checked = Some(needs.connections);
            // Some of the files open now are connections: at most those that had room.
            let others = needs.others.max(open_files().saturating_sub(checked));
            let Err(shortage) = make_room(needs.connections, others) else { return };
            if std::mem::replace(&mut needs.warned, true) {
                return;
            }
            shortage
        };
        if let Some(listener) = self.listener.get() {
            listener(&shortage);
        }
    }
}

/// Raises the soft limit towards the hard one, if `connections` connections need it.
fn make_room(connections: usize, others: usize) -> Result<(), TooFewDescriptors> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let needed = connections.saturating_add(others).saturating_add(SPARE) as u64;
    let wanted = maximum.map_or(needed, |most| needed.min(most));
    if current.is_some_and(|limit| limit < wanted) {
        // The part to which it could not be raised is missing below.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
    let limit = getrlimit(Resource::Nofile).current;
    fits(connections, limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)), others)
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").or_else(|_| std::fs::read_dir("/dev/fd")).map_or(0, Iterator::count)
}

fn fits(needed: usize, limit: usize, used: usize) -> Result<(), TooFewDescriptors> {
    let free = limit.saturating_sub(used).saturating_sub(SPARE);
    if needed <= free { Ok(()) } else { Err(TooFewDescriptors { needed, free, limit, used }) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn connections_must_fit() {
        assert_eq!(fits(900, 1024, 20), Ok(()));
        assert_eq!(fits(2048, 1024, 20), Err(TooFewDescriptors { needed: 2048, free: 940, limit: 1024, used: 20 }));
        assert!(Descriptors::new(1).check().is_ok());
    }

    /// More than any process may open.
    const TOO_MANY: usize = usize::MAX / 4;

    #[test]
    fn later_endpoints_are_checked_and_reported_once() {
        let (all, warnings) = (Descriptors::new(8), Arc::new(AtomicUsize::new(0)));
        let count = warnings.clone();
        all.on_shortage(move |shortage| {
            assert_eq!(shortage.needed, TOO_MANY);
            count.fetch_add(1, Ordering::Relaxed);
        });
        all.change(8, TOO_MANY); // while the functions are made: the first check is to come
        assert_eq!(warnings.load(Ordering::Relaxed), 0);
        assert!(all.check().is_err());
        all.change(TOO_MANY, 8);
        assert!(all.check().is_ok());
        all.change(8, 16);
        assert_eq!((all.connections(), warnings.load(Ordering::Relaxed)), (16, 0));
        all.change(16, TOO_MANY);
        all.change(TOO_MANY, TOO_MANY + 1);
        assert_eq!(warnings.load(Ordering::Relaxed), 1);
    }
}
