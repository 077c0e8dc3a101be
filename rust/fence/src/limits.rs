//! The limits of resources of a child: soft and hard are the same, so that it can raise none but
//! that of its stack, which its memory bounds.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags, openat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::rules::Rules;

/// Initial upper bound; usually machines give 8 MiB, and each thread reserves as much. Programs
/// with a deep recursion raise it.
const STACK: u64 = 64 << 20;

/// Sets all limits of this process. `tasks` counts all threads of its user, where these are known
/// to share its count.
pub(crate) fn set(rules: &Rules, memory: &Memory, tasks: u64) -> io::Result<()> {
    let (all, data) = memory.read()?;
    let cpu = rules.cpu_seconds;
    let stack = getrlimit(Resource::Stack).current.unwrap_or(STACK).min(STACK);
    lower(Resource::Stack, stack, u64::MAX)?;
    for (resource, limit) in [
        // Less than a file takes; with 1, unlike 0, the kernel starts no program for it either.
        (Resource::Core, 1),
        (Resource::Memlock, 0),
        (Resource::Msgqueue, 0),
        (Resource::Rtprio, 0),
        (Resource::Nice, 0),
        (Resource::Sigpending, 256),
        (Resource::Fsize, rules.file_size),
        (Resource::Nofile, rules.open_files),
        (Resource::Nproc, tasks),
        (Resource::Data, data.saturating_add(rules.memory)),
        (Resource::As, all.saturating_add(rules.memory)),
    ] {
        lower(resource, limit, limit)?;
    }
    // The signal that can be caught first, a second later the one that can't.
    lower(Resource::Cpu, cpu, cpu.saturating_add(1))
}

/// A hard limit that is lower already stays as it is.
fn lower(resource: Resource, soft: u64, hard: u64) -> io::Result<()> {
    let highest = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let (soft, hard) = (soft.min(highest), hard.min(highest));
    Ok(setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) })?)
}

/// Memory of each kind that the forking process has; the limits are added to it. Read through a
/// descriptor: a child may have no `/proc`, and has what its parent has.
pub(crate) struct Memory {
    sizes: File,
    /// Found before there is a private root: kernels before 6.4 tell it in `/proc` only.
    page: u64,
}

impl Memory {
    /// Opens those of this process, in any name space of processes; `proc` is the folder, `page`
    /// the size of a page.
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
