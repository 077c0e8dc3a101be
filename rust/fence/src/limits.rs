//! The resource limits of a child. Soft and hard limits are equal, so a child can't raise any. The
//! exception is the stack, which the memory limit bounds.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags, openat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::rules::Rules;

/// Initial upper bound; usually machines give 8 MiB, and each thread reserves that much. Programs
/// with a deep recursion raise it.
const STACK: u64 = 64 << 20;

/// Sets all limits of this process. `tasks` counts all threads of its user, if the kernel counts
/// these together.
pub(crate) fn set(rules: &Rules, memory: &Memory, tasks: u64) -> io::Result<()> {
    let (all, data) = memory.read()?;
    let cpu = rules.cpu_seconds;
    let stack = getrlimit(Resource::Stack).current.unwrap_or(STACK).min(STACK);
    lower(Resource::Stack, stack, u64::MAX)?;
    for (resource, limit) in [
        // Less than a core file takes. 1 also prevents the kernel from starting a core handler,
        // which 0 does not.
        (Resource::Core, 1),
        (Resource::Memlock, 0),
        (Resource::Msgqueue, 0),
        (Resource::Rtprio, 0),
        (Resource::Nice, 0),
        (Resource::Sigpending, 256),
        (Resource::Fsize, rules.file_size),
        (Resource::Nofile, rules.open_files),
        (Resource::Nproc, tasks),
        (Resource::Data, data.saturating_add(rules.memory_limit)),
        (Resource::As, all.saturating_add(rules.memory_limit)),
    ] {
        lower(resource, limit, limit)?;
    }
    // SIGXCPU, which can be caught, comes first; SIGKILL a second later.
    lower(Resource::Cpu, cpu, cpu.saturating_add(1))
}

/// A hard limit that is lower already is left unchanged.
fn lower(resource: Resource, soft: u64, hard: u64) -> io::Result<()> {
    let highest = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let (soft, hard) = (soft.min(highest), hard.min(highest));
    Ok(setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) })?)
}

/// Memory of each kind that the forking process has, to which the limits are added. Read through a
/// descriptor: a child may have no `/proc`, and has the same memory as its parent.
pub(crate) struct Memory {
    sizes: File,
    /// Read before there is a private root, because kernels before 6.4 report it only in `/proc`.
    page: u64,
}

impl Memory {
    /// Opens the memory counts of this process, in any name space of processes. `proc` is the
    /// folder, `page` the size of a page.
    pub(crate) fn open(proc: &OwnedFd, page: u64) -> io::Result<Self> {
        let file = openat(proc, "self/statm", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { sizes: file.into(), page })
    }

    /// Returns all of it, and the private writable part.
    fn read(&self) -> io::Result<(u64, u64)> {
        let mut text = [0; 256];
        let read = self.sizes.read_at(&mut text, 0)?;
        // Size, resident, shared, text, unused, data: in pages.
        let text = String::from_utf8_lossy(&text[..read]);
        let mut sizes =
            text.split_ascii_whitespace().map(|pages| pages.parse().unwrap_or(0_u64).saturating_mul(self.page));
        Ok((sizes.next().unwrap_or(0), sizes.nth(4).unwrap_or(0)))
    }
}
