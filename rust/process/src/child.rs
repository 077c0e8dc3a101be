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

use crate::exit_status::ExitStatus;
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

    /// Its exit status, if it has ended and the kernel shows it.
    pub(super) fn exit_status(&self) -> Option<ExitStatus> {
        if self.parent.is_alive() { exit_status(self.pid) } else { None }
    }
}

/// Returns whether a process is stopped, by a signal or a debugger, according to the kernel.
pub(super) fn is_stopped(pid: Pid) -> bool {
    matches!(state(pid).as_deref(), Some([b'T' | b't', ..]))
}

/// Returns the exit status of a process that has ended and was not reaped. `None` also for status
/// 0, because the kernel shows 0 where access is denied.
fn exit_status(pid: Pid) -> Option<ExitStatus> {
    let ended = state(pid).filter(|state| state.starts_with(b"Z"))?;
    let status = str::from_utf8(ended.trim_ascii_end()).ok()?.rsplit(' ').next()?.parse().ok()?;
    (status != 0).then_some(ExitStatus::from_wait(status))
}

/// The fields of a process from its state on, according to the kernel.
fn state(pid: Pid) -> Option<Vec<u8>> {
    let text = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let after = text.iter().rposition(|byte| *byte == b')')?; // its name may hold anything
    text.get(after + 2..).map(<[u8]>::to_vec)
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use guerdon_core::pidfd::open_pidfd;
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn the_exit_status_of_a_process_is_shown_until_it_is_reaped() {
        let cases = [
            ("exit 3", Some(ExitStatus::Exited(3))),
            ("kill -SEGV $$", Some(ExitStatus::Killed(11))),
            ("kill -KILL $$", Some(ExitStatus::Killed(9))),
            ("exit 0", None),
        ];
        for (script, shown) in cases {
            let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            let pid = pid_from_message(child.id().into()).unwrap();
            poll(&mut [PollFd::new(&open_pidfd(pid).unwrap(), PollFlags::IN)], None).unwrap();
            assert_eq!(exit_status(pid), shown, "{script}");
            child.wait().unwrap();
            assert_eq!(exit_status(pid), None);
        }
        assert_eq!(exit_status(rustix::process::getpid()), None);
    }
}
