//! Descriptors of a worker that is about to be forked, and the request to a loader for it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use guerdon_core::pidfd::Pidfd;
use rustix::io::Errno;
use rustix::process::Pid;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;
use tokio::time::timeout;

use super::process::{ANSWER, stay_stopped};
use crate::child::{Child, ForkedWorker, WorkerMark, pid_from_message};
use crate::output;
use crate::parent::Parent;
use crate::shared_page::SharedPage;
use crate::stack_file::StackFile;
use crate::zygote_requests::{self, ZygoteSocket};

pub(super) struct NewWorker {
    mark: WorkerMark,
    socket: UnixStream,
    their_socket: OwnedFd,
    page: SharedPage,
    stack: StackFile,
    output: Receiver,
    their_output: OwnedFd,
    /// Replaced by the child's pidfd: after the fork, descriptors must not run out.
    reserve: OwnedFd,
}

impl NewWorker {
    pub(super) fn new() -> io::Result<Self> {
        let (socket, their_socket) = zygote_requests::pair()?;
        let stack = StackFile::new()?;
        let page = SharedPage::new(&stack)?;
        let (output, their_output) = output::pipe()?;
        let reserve = output::duplicate(page.fd())?;
        Ok(Self { mark: WorkerMark::new(), socket, their_socket, page, stack, output, their_output, reserve })
    }

    /// Sends the request to a forking process.
    pub(super) async fn send(&self, control: &ZygoteSocket, op: u32, flags: u32) -> io::Result<()> {
        let fds = [self.their_socket.as_fd(), self.page.fd(), self.their_output.as_fd(), self.stack.fd()];
        control.send(op, flags, self.mark.0, &fds).await
    }

    /// Makes the worker, once its pid is there.
    pub(super) fn forked(self, pid: Pid, parent: Arc<Parent>) -> io::Result<ForkedWorker> {
        drop(self.reserve);
        let Self { mark, socket, page, stack, output, .. } = self;
        let child = Child { pid, pidfd: Pidfd::open(pid)?, mark, page, stack, parent };
        Ok(ForkedWorker { child, socket, output })
    }
}

/// Returns whether the system refused a fork, while the forking process works.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    let lost = [Errno::PIPE, Errno::CONNRESET].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|errno| !lost.contains(&errno))
}

/// Returns the answer of a loader; an error if it does not answer in time.
pub(super) async fn answered_by<T>(pid: Pid, answer: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::select! {
        answer = timeout(ANSWER, answer) => answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
        () = stay_stopped(vec![pid]) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Makes a loader fork a worker.
pub(super) async fn fork_by(control: &ZygoteSocket, parent: Arc<Parent>) -> io::Result<ForkedWorker> {
    let new = NewWorker::new()?;
    new.send(control, zygote_requests::WORKER, 0).await?;
    let pid = pid_from_message(control.reply_to(zygote_requests::WORKER).await?.value)?;
    new.forked(pid, parent)
}
