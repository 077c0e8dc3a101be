//! A worker process, seen from outside.
//!
//! It is signalled by its pidfd, and its group by number, which is safe while the zygote lives: the
//! zygote reaps when it is told to, and until then the number is taken. Its end is seen by its
//! pidfd, never by its socket, which a fork of its own may hold open.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;

use crate::shared_page::SharedPage;
use crate::stack_file::StackFile;

/// How long the end of a process may take once its socket is closed or it was killed.
pub(super) const DYING: Duration = Duration::from_millis(500);

/// A process that can be waited for and signalled without its number being mistaken.
pub(super) struct Pidfd {
    /// A pidfd in the clothes of a socket, of which only the readiness is used: tokio can wait for
    /// a plain descriptor by unsafe code only.
    stream: UnixStream,
}

impl Pidfd {
    pub(super) fn open(pid: Pid) -> io::Result<Self> {
        let fd = open_pidfd(pid)?;
        // Not PIDFD_NONBLOCK, which needs Linux 5.10.
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self { stream: UnixStream::from_std(StdStream::from(fd))? })
    }

    /// Waits for the end of the process.
    pub(super) async fn ended(&self) {
        // An error would mean that the runtime is going away, and all of this with it.
        let _ = self.stream.readable().await;
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(self.stream.as_fd(), signal)?)
    }
}

/// A descriptor of a process, by whose readiness its end is seen.
pub(super) fn open_pidfd(pid: Pid) -> io::Result<OwnedFd> {
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| match errno {
        Errno::NOSYS | Errno::PERM => io::Error::new(
            io::Error::from(errno).kind(),
            "the system refuses pidfd_open: the process lane needs Linux 5.4 or later, and a container that allows this call",
        ),
        errno => errno.into(),
    })
}

/// A number that all descendants of one worker carry, whatever session they are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkerMark(pub u64);

impl WorkerMark {
    pub(super) fn new() -> Self {
        // It stands as a resource limit: high enough to limit nothing, and not "unlimited".
        Self(fastrand::u64(1 << 40..1 << 62))
    }
}

/// A worker just forked, and our ends of what it was given.
pub(super) struct Forked {
    pub child: Child,
    pub socket: UnixStream,
    pub output: Receiver,
}

/// A worker process.
pub(super) struct Child {
    pub pid: Pid,
    pub pidfd: Pidfd,
    /// By which the zygote finds what it started and left behind.
    pub mark: WorkerMark,
    pub page: SharedPage,
    /// Where its stack is written when it is asked for.
    pub stack: StackFile,
    /// Whether the zygote that forked it lives. Written by the zygote's supervisor.
    pub zygote_alive: Arc<AtomicBool>,
}

impl Child {
    /// Kills the process and all of its group. Harmless when they have ended.
    pub(super) fn kill(&self) {
        if self.zygote_alive.load(Ordering::Acquire) {
            // The group is gone already, or nothing that we may do helps.
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        }
        let _ = self.pidfd.signal(Signal::KILL);
    }

    pub(super) fn is_stopped(&self) -> bool {
        is_stopped(self.pid)
    }
}

/// Whether the kernel says that a process is stopped, by a signal or a debugger.
pub(super) fn is_stopped(pid: Pid) -> bool {
    let state = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok().and_then(|text| {
        let after = text.iter().rposition(|byte| *byte == b')')?; // its name may hold anything
        text.get(after + 2).copied()
    });
    matches!(state, Some(b'T' | b't'))
}

/// A pid as another process told it: a child of a zygote is neither this process nor init.
pub(super) fn pid_from_message(value: i64) -> io::Result<Pid> {
    if value < 0 {
        let errno = i32::try_from(-value).unwrap_or(0);
        return Err(io::Error::from_raw_os_error(errno));
    }
    let number = i32::try_from(value).ok().filter(|number| *number > 1 && number.cast_unsigned() != std::process::id());
    number.and_then(Pid::from_raw).ok_or_else(|| io::Error::other(format!("{value} is no pid of a worker")))
}
