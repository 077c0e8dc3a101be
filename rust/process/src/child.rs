//! A worker process, as its supervisor sees it.
//!
//! It is signalled by its pidfd, and its group by number, which is safe while the zygote lives: the
//! zygote reaps on request, and until then the number is taken. Its end is detected at the pidfd,
//! not at the socket, which forks of the worker may hold open.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use guerdon_core::pidfd::Pidfd;
use rustix::process::{Pid, Signal};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;

use crate::parent::Parent;
use crate::shared_page::SharedPage;
use crate::stack_file::StackFile;

/// Time in which a process must end after its socket was closed or it was killed.
pub(super) const DYING: Duration = Duration::from_millis(500);

/// A number that all descendants of one worker carry, in any session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkerMark(pub u64);

impl WorkerMark {
    pub(super) fn new() -> Self {
        // The mark is a resource limit: high enough to limit nothing, and not "unlimited".
        Self(fastrand::u64(1 << 40..1 << 62))
    }
}

/// A worker that was just forked, and our ends of its descriptors.
pub(super) struct ForkedWorker {
    pub child: Child,
    pub socket: UnixStream,
    pub output: Receiver,
}

/// A worker process.
pub(super) struct Child {
    pub pid: Pid,
    pub pidfd: Pidfd,
    /// Mark by which the zygote finds processes that the worker left behind.
    pub mark: WorkerMark,
    pub page: SharedPage,
    /// The file of its stack, which is written on request.
    pub stack: StackFile,
    /// The process that forked it.
    pub parent: Arc<Parent>,
}

impl Child {
    /// Kills the process and its group. Harmless after their end.
    pub(super) fn kill(&self) {
        if self.parent.is_alive() {
            // An error means that the group is gone, or that we lack the permission, which nothing
            // here can change.
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        }
        let _ = self.pidfd.signal(Signal::KILL);
    }

    pub(super) fn is_stopped(&self) -> bool {
        is_stopped(self.pid)
    }
}

/// Returns whether a process is stopped, by a signal or a debugger, according to the kernel.
pub(super) fn is_stopped(pid: Pid) -> bool {
    let state = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok().and_then(|text| {
        let after = text.iter().rposition(|byte| *byte == b')')?; // its name may hold anything
        text.get(after + 2).copied()
    });
    matches!(state, Some(b'T' | b't'))
}

/// Reads a pid from another process. This process and init are refused, because a zygote has
/// neither as a child.
pub(super) fn pid_from_message(value: i64) -> io::Result<Pid> {
    if value < 0 {
        let errno = i32::try_from(-value).unwrap_or(0);
        return Err(io::Error::from_raw_os_error(errno));
    }
    let number = i32::try_from(value).ok().filter(|number| *number > 1 && number.cast_unsigned() != std::process::id());
    number.and_then(Pid::from_raw).ok_or_else(|| io::Error::other(format!("{value} is no pid of a worker")))
}
