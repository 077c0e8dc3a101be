//! A file descriptor that is readable from `notify` until `drain`: it can be polled together with
//! signals, and by any event loop. No function here blocks.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The two ends of a wake-up; one descriptor where the system has eventfd.
pub struct Wake {
    #[cfg(target_os = "linux")]
    event: OwnedFd,
    #[cfg(not(target_os = "linux"))]
    ends: (OwnedFd, OwnedFd),
}

#[cfg(target_os = "linux")]
impl Wake {
    /// A descriptor that is not readable yet.
    pub fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Self { event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    fn ends(&self) -> (&OwnedFd, &OwnedFd) {
        (&self.event, &self.event)
    }
}

#[cfg(not(target_os = "linux"))]
impl Wake {
    /// A descriptor that is not readable yet.
    pub fn new() -> io::Result<Self> {
        let ends = rustix::pipe::pipe()?;
        for end in [&ends.0, &ends.1] {
            rustix::io::ioctl_fionbio(end, true)?;
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
        }
        Ok(Self { ends })
    }

    fn ends(&self) -> (&OwnedFd, &OwnedFd) {
        (&self.ends.0, &self.ends.1)
    }
}

/// Returns the message for a missing descriptor: which one failed, and the remedy if too many are
/// open.
#[must_use]
pub fn no_descriptor(what: &str, error: &io::Error) -> String {
    let too_many = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].map(rustix::io::Errno::raw_os_error);
    let advice = if error.raw_os_error().is_some_and(|number| too_many.contains(&number)) {
        " Allow more (ulimit -n), or keep fewer batches at a time."
    } else {
        ""
    };
    format!("{what}: {error}.{advice}")
}

impl Wake {
    /// Makes the descriptor readable.
    pub fn notify(&self) {
        // The write fails only if the descriptor is full of wake-ups, and then it is readable.
        let _ = rustix::io::write(self.ends().1, &1_u64.to_ne_bytes());
    }

    /// Resets the descriptor to unreadable.
    pub fn drain(&self) {
        let mut bytes = [0; 512];
        while rustix::io::read(self.ends().0, &mut bytes).is_ok_and(|n| n == bytes.len()) {}
    }

    /// The descriptor to poll for reading.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ends().0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn readable(wake: &Wake) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&wake.fd(), PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    #[test]
    fn it_is_readable_from_notify_to_drain() {
        let wake = Wake::new().unwrap();
        assert!(!readable(&wake));
        for _ in 0..3 {
            wake.notify();
            assert!(readable(&wake) && readable(&wake));
        }
        wake.drain();
        assert!(!readable(&wake));
    }

    #[test]
    fn neither_drains_nor_notifies_wait() {
        let wake = Wake::new().unwrap();
        wake.drain();
        for _ in 0..100_000 {
            wake.notify();
        }
        assert!(readable(&wake));
    }
}
