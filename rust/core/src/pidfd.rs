//! A descriptor of a process, by which its end is seen and it is signalled.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use tokio::net::UnixStream;

/// A process that can be waited for and signalled without its number being mistaken.
pub struct Pidfd {
    /// A pidfd in the clothes of a socket, of which only the readiness is used: tokio can wait for
    /// a plain descriptor by unsafe code only.
    stream: UnixStream,
}

impl Pidfd {
    /// Opens it, within a runtime; an error if the process has ended.
    pub fn open(pid: Pid) -> io::Result<Self> {
        Self::of(open_pidfd(pid)?)
    }

    /// Makes it of a pidfd, within a runtime.
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

    /// Returns whether the process has ended, by the kernel's word of this moment.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(self.stream.as_fd(), signal)?)
    }

    /// Waits for its end, and takes it off the table of processes if it is a child of this one.
    pub async fn reap(&self) {
        self.ended().await;
        // Not a child: there is nothing to do.
        let _ = rustix::process::waitid(WaitId::PidFd(self.stream.as_fd()), WaitIdOptions::EXITED);
    }
}

/// A descriptor of a process, by whose readiness its end is seen.
pub fn open_pidfd(pid: Pid) -> io::Result<OwnedFd> {
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| match errno {
        Errno::NOSYS | Errno::PERM => io::Error::new(
            io::Error::from(errno).kind(),
            "the system refuses pidfd_open: the process lane needs Linux 5.4 or later, and a container that allows this call",
        ),
        errno => errno.into(),
    })
}
