//! The seccomp programs that all children of one kind share, compiled once: a long program for the
//! forking process itself, and a short one that children add.
//!
//! - A call that is denied fails with "Operation not permitted"; it never ends the process, so that
//!   a program that tries a call and has another way goes on.
//! - Arguments are compared in the width in which the kernel reads them.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use crate::denied_calls as denied;
use crate::signal_filter;

/// Calls of the deny list that a child of a kind may make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllowedCalls {
    pub processes: bool,
    pub execute: bool,
    /// True if all files of the child's user that the child can name are its own by right.
    pub own_files_only: bool,
}

type Calls = BTreeMap<c_long, Vec<SeccompRule>>;

/// Returns the program of the forking process, which its children inherit.
pub(crate) fn of_the_family() -> Result<BpfProgram, BackendError> {
    let mut calls: Calls = denied::to_all().map(|call| (call, Vec::new())).collect();
    pairs(&mut calls)?;
    opened(&mut calls)?;
    // Limits of other processes.
    deny(&mut calls, libc::SYS_prlimit64, 0, Op::Ne, 0)?;
    for &(call, index) in denied::MESSAGES {
        deny(&mut calls, call, index, Op::MaskedEq(denied::OUT_OF_BAND.into()), denied::OUT_OF_BAND)?;
    }
    for &option in denied::SOCKET_PROGRAMS {
        deny(&mut calls, libc::SYS_setsockopt, 2, Op::Eq, option)?;
    }
    deny(&mut calls, libc::SYS_getsockopt, 2, Op::Eq, denied::PEER_DESCRIPTOR)?;
    // The argument that only reads the personality is allowed.
    deny(&mut calls, libc::SYS_personality, 0, Op::Ne, u32::MAX)?;
    for &option in denied::PRCTL_OPTIONS {
        deny(&mut calls, libc::SYS_prctl, 0, Op::Eq, option)?;
    }
    for &request in denied::IOCTL_REQUESTS {
        deny(&mut calls, libc::SYS_ioctl, 1, Op::Eq, request)?;
    }
    program(calls)
}

/// Returns the program that a child adds.
pub(crate) fn of_a_child(allowed: AllowedCalls) -> Result<BpfProgram, BackendError> {
    let mut calls: Calls = denied::to_children().map(|call| (call, Vec::new())).collect();
    calls.insert(denied::FILTERS, Vec::new());
    if !allowed.execute {
        calls.extend(denied::EXECUTE.iter().map(|&call| (call, Vec::new())));
    }
    if !allowed.own_files_only {
        calls.extend(denied::OF_AN_OWNER.iter().chain(denied::OF_AN_OWNER_ONCE).map(|&call| (call, Vec::new())));
    }
    if allowed.processes {
        // `clone` is denied only name spaces and a change of the parent.
        for &flag in denied::CLONE_FLAGS {
            deny(&mut calls, libc::SYS_clone, 0, Op::MaskedEq(flag.into()), flag)?;
        }
    } else {
        calls.insert(denied::WHOLE_FILE_LOCKS, Vec::new());
        calls.extend(denied::FORKS.iter().map(|&call| (call, Vec::new())));
        deny(&mut calls, libc::SYS_clone, 0, Op::MaskedEq(libc::CLONE_THREAD as u64), 0)?;
    }
    for &option in denied::PRCTL_OPTIONS_OF_A_CHILD {
        deny(&mut calls, libc::SYS_prctl, 0, Op::Eq, option)?;
    }
    for &command in denied::FCNTL_COMMANDS {
        deny(&mut calls, libc::SYS_fcntl, 1, Op::Eq, command)?;
    }
    program(calls)
}

fn program(calls: Calls) -> Result<BpfProgram, BackendError> {
    let (whole, by_argument): (Calls, Calls) = calls.into_iter().partition(|(_, rules)| rules.is_empty());
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let rest = SeccompFilter::new(by_argument, SeccompAction::Allow, refused, architecture()?)?;
    Ok([signal_filter::of_refused(whole.keys()), rest.try_into()?].concat())
}

/// Denies ways to open a file for which Landlock checks too little: reading and emptying it, before
/// Linux 6.2, and opening it for neither reading nor writing, which is enough to change its flags.
fn opened(calls: &mut Calls) -> Result<(), BackendError> {
    let (flag, mode) = (libc::O_TRUNC as u32, libc::O_ACCMODE as u32);
    for (mask, value) in [(flag | mode, flag), (mode, mode)] {
        deny(calls, libc::SYS_openat, 2, Op::MaskedEq(mask.into()), value)?;
        #[cfg(target_arch = "x86_64")]
        deny(calls, libc::SYS_open, 1, Op::MaskedEq(mask.into()), value)?;
    }
    Ok(())
}

/// Allows pairs of connected streams, which event loops use to wake themselves. Datagrams could be
/// addressed to other processes, and other families reach the network.
fn pairs(calls: &mut Calls) -> Result<(), BackendError> {
    const TYPE: u64 = 0xf;
    deny(calls, libc::SYS_socketpair, 0, Op::Ne, libc::AF_UNIX as u32)?;
    for kind in (0..=TYPE as u32).filter(|&kind| kind != libc::SOCK_STREAM as u32) {
        deny(calls, libc::SYS_socketpair, 1, Op::MaskedEq(TYPE), kind)?;
    }
    Ok(())
}

/// Denies `call` if the comparison of its argument number `index` with `value` holds. All such
/// arguments are 32 bits wide in the kernel, which ignores the bits above them.
fn deny(calls: &mut Calls, call: c_long, index: u8, op: Op, value: u32) -> Result<(), BackendError> {
    let condition = SeccompCondition::new(index, Width::Dword, op, value.into())?;
    calls.entry(call).or_default().push(SeccompRule::new(vec![condition])?);
    Ok(())
}

fn architecture() -> Result<TargetArch, BackendError> {
    std::env::consts::ARCH.try_into()
}

#[cfg(test)]
mod tests {
    //! That the programs compile, and that a kernel takes programs of their length.

    use super::*;

    #[test]
    fn programs_compile_and_are_short_enough() {
        for (processes, execute, own_files_only) in
            [(false, false, false), (true, true, false), (true, true, true), (false, true, true)]
        {
            let child = of_a_child(AllowedCalls { processes, execute, own_files_only }).unwrap();
            let family = of_the_family().unwrap();
            assert!(child.len() < 1024 && family.len() < 1024, "{} and {}", child.len(), family.len());
        }
    }
}
