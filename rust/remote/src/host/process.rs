//! The process at the other end, by a descriptor that no other process can be mistaken for.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use tokio::net::UnixStream;

/// See the module.
pub struct Peer {
    /// A pidfd in the clothes of a socket, of which only the readiness is used: tokio can wait for
    /// a plain descriptor by unsafe code only.
    descriptor: UnixStream,
}

impl Peer {
    /// Opens it, within a runtime.
    ///
    /// # Errors
    /// It has ended, or the system has no such descriptors.
    pub fn open(process: i32) -> io::Result<Self> {
        let pid = Pid::from_raw(process).filter(|_| process > 0).ok_or(io::ErrorKind::NotFound)?;
        Self::of(pidfd_open(pid, PidfdFlags::empty())?)
    }

    /// The process of a pidfd, within a runtime.
    ///
    /// # Errors
    /// It can't be waited for.
    pub fn of(handle: OwnedFd) -> io::Result<Self> {
        // Not PIDFD_NONBLOCK, which needs Linux 5.10.
        rustix::io::ioctl_fionbio(&handle, true)?;
        Ok(Self { descriptor: UnixStream::from_std(StdStream::from(handle))? })
    }

    /// Waits for the end of the process.
    pub async fn ended(&self) {
        // An error would mean that the runtime is going away, and all of this with it.
        let _ = self.descriptor.readable().await;
    }

    /// Kills it. Harmless when it has ended.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(self.descriptor.as_fd(), Signal::KILL);
    }

    /// Waits for its end, and takes it off the table of processes if it is a child of this one.
    pub async fn reap(&self) {
        self.ended().await;
        // Not a child: there is nothing to do.
        let _ = waitid(WaitId::PidFd(self.descriptor.as_fd()), WaitIdOptions::EXITED);
    }
}
