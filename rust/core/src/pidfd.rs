//! A descriptor of a process, for waiting for its end and for signals.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use tokio::net::UnixStream;

/// A process that can be waited for and signalled without the risk that its pid is reused.
pub struct Pidfd {
    /// The pidfd, typed as a socket although only its readiness is used: tokio can wait for a plain
    /// descriptor only with unsafe code.
    stream: UnixStream,
}

impl Pidfd {
    /// Opens a pidfd, within a runtime; an error if the process has ended.
    pub fn open(pid: Pid) -> io::Result<Self> {
        Self::of(open_pidfd(pid)?)
    }

    /// Wraps a pidfd, within a runtime.
    pub fn of(handle: OwnedFd) -> io::Result<Self> {
        // Not PIDFD_NONBLOCK, which needs Linux 5.10.
        rustix::io::ioctl_fionbio(&handle, true)?;
        Ok(Self { stream: UnixStream::from_std(StdStream::from(handle))? })
    }

    /// Waits for the end of the process.
    pub async fn ended(&self) {
        // An error would mean that the runtime is going away, and all of this with it.
        let _ = self.stream.readable().await;
    }

    /// Returns whether the process has ended, according to the kernel at this moment.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(self.stream.as_fd(), signal)?)
    }

    /// Waits for the end of the process, and reaps a child of this process.
    pub async fn reap(&self) {
        self.ended().await;
        // An error means that it is not a child, which is fine.
        let _ = rustix::process::waitid(WaitId::PidFd(self.stream.as_fd()), WaitIdOptions::EXITED);
    }
}

/// Opens a descriptor that is readable when the process has ended.
pub fn open_pidfd(pid: Pid) -> io::Result<OwnedFd> {
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| match errno {
        Errno::NOSYS | Errno::PERM => io::Error::new(
            io::Error::from(errno).kind(),
            "the system refuses pidfd_open: the process lane needs Linux 5.4 or later, and a container that allows this call",
        ),
        errno => errno.into(),
    })
}
