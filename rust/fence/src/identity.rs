//! Who a child is: another user where this process may choose one, and no capabilities.

use std::io;

use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// The first of 4096 ids that no distribution gives to a user: a user per process that forks, so
/// that limits and signals of its children meet nobody else's.
const FIRST: u32 = 61184;

/// The id of the user of this process' children.
pub(crate) fn user() -> u32 {
    FIRST + std::process::id() % 4096
}

/// Whether this process may take another user for its children.
pub(crate) fn may_change() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID))
}

/// Whether this process may make name spaces without a user name space.
pub(crate) fn may_administer() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// For good: the saved ids change too.
pub(crate) fn become_user(id: u32) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    Ok(rustix::thread::set_thread_res_uid(user, user, user)?)
}

/// Only for the count of its threads, which is by the real user and leaves root out; files and all
/// else go by the effective one.
pub(crate) fn be_counted_as(id: u32) -> io::Result<()> {
    let own = rustix::process::geteuid();
    Ok(rustix::thread::set_thread_res_uid(Uid::from_raw(id), own, own)?)
}

/// The sets that count; `no_new_privs` keeps the rest from coming back.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    let _ = rustix::thread::clear_ambient_capability_set();
    Ok(rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}
