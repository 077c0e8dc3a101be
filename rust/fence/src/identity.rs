//! Identity of a child: another user where this process may choose one, and no capabilities.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// The first of 2^26 ids that no distribution, systemd or container engine assigns: one user per
/// forking process, so that limits and signals of its children affect no other process.
const FIRST: u32 = 0x7000_0000;
/// All process ids are below this power of two. The bits above are random, for containers that
/// count processes separately and users together.
const PROCESSES: u32 = 1 << 22;
const CHANCES: u32 = 1 << 4;
/// First of a smaller set of ids, for the user name space of a container in which only small ids
/// exist.
const FIRST_SMALL: u32 = 60578;
const SMALL: u32 = 606;

/// A user for the children of this process.
pub(crate) struct FreeUser {
    pub id: u32,
    /// True if no children of another process have this user.
    pub alone: bool,
    /// A name that only one process can hold at a time, for the use of this id.
    _name: Option<UnixDatagram>,
}

impl FreeUser {
    /// Chooses a user. Reads `/proc`; needs sockets if only small ids exist.
    pub(crate) fn choose() -> Self {
        let process = std::process::id();
        let chance = RandomState::new().hash_one(process) as u32 % CHANCES;
        let id = FIRST + chance * PROCESSES + process % PROCESSES;
        let exists = |map| fs::read_to_string(map).is_ok_and(|text| holds(&text, id));
        if exists("/proc/self/uid_map") && exists("/proc/self/gid_map") {
            return Self { id, alone: true, _name: None };
        }
        Self::small(process)
    }

    /// Returns a free small id. The search begins at a position that depends on the process.
    fn small(process: u32) -> Self {
        let ids = (0..SMALL).map(|step| FIRST_SMALL + process.wrapping_add(step) % SMALL);
        for id in ids {
            let name = SocketAddr::from_abstract_name(format!("guerdon-user-{id}"));
            match name.and_then(|name| UnixDatagram::bind_addr(&name)) {
                Ok(name) => return Self { id, alone: true, _name: Some(name) },
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(_) => break,
            }
        }
        Self { id: FIRST_SMALL + process % SMALL, alone: false, _name: None }
    }
}

/// Returns whether a map of ids (first here, first outside, count) contains this id.
fn holds(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_ascii_whitespace().map(|number| number.parse::<u32>().ok());
        let (first, count) = (numbers.next().flatten(), numbers.nth(1).flatten());
        matches!((first, count), (Some(first), Some(count)) if id.checked_sub(first).is_some_and(|at| at < count))
    })
}

/// Returns whether this process may set another user for its children.
pub(crate) fn may_change() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID))
}

/// Returns whether this process may make name spaces without a user name space.
pub(crate) fn may_administer() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Sets the user irrevocably: the saved ids change too.
pub(crate) fn become_user(id: u32) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    Ok(rustix::thread::set_thread_res_uid(user, user, user)?)
}

/// Sets the real user, by which the kernel counts threads (root's are not limited). Files and other
/// permissions go by the effective user.
pub(crate) fn be_counted_as(id: u32) -> io::Result<()> {
    let own = rustix::process::geteuid();
    Ok(rustix::thread::set_thread_res_uid(Uid::from_raw(id), own, own)?)
}

/// Empties all sets except the bounding set, which grants nothing with `no_new_privs`.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    let _ = rustix::thread::clear_ambient_capability_set();
    Ok(rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

#[cfg(test)]
mod tests {
    //! Ids that exist in each place.

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn maps_hold_their_own_ids() {
        let all = "         0          0 4294967295\n";
        let of_a_container = "0 100000 65536\n70000 300000 1\n";
        for (id, container) in [(0, true), (FIRST, false), (FIRST_SMALL, true), (65536, false), (70000, true)] {
            assert!(holds(all, id));
            assert_eq!(holds(of_a_container, id), container, "{id}");
        }
        assert!(!holds("", 0) && !holds("0 0", 0) && !holds("none", 0));
    }

    #[test]
    fn ids_are_in_ranges_that_are_nobodys() {
        let id = FreeUser::choose().id;
        let last = FIRST + CHANCES * PROCESSES;
        assert!((FIRST..last).contains(&id) || (FIRST_SMALL..FIRST_SMALL + SMALL).contains(&id));
        assert!(last < 0x7FFE_0000 && FIRST_SMALL + SMALL <= 61184);
    }

    #[test]
    fn small_ids_are_of_one_process_each() {
        let all: Vec<FreeUser> = (0..SMALL).map(|_| FreeUser::small(7)).collect();
        let ids: BTreeSet<u32> = all.iter().map(|user| user.id).collect();
        let alone = all.iter().filter(|user| user.alone).count();
        assert!(ids.len() >= alone, "{} ids of {alone} processes", ids.len());
        assert!(alone > SMALL as usize / 2, "others may have some: {alone}");
        let more = FreeUser::small(7);
        assert!(!more.alone, "all are taken");
        drop(all);
        assert!(FreeUser::small(7).alone, "they are free again");
    }
}
