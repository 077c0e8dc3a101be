//! Requests of the lane to the zygote's supervisor, and the progress of the lane's end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::Pid;
use tokio::sync::{mpsc, oneshot};

use crate::child::{Child, ForkedWorker, WorkerMark};
use crate::exit_status::ExitStatus;
use crate::parent::Parent;

/// Progress of the lane's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LaneStage {
    Open,
    /// Workers are dismissed, and none is forked.
    Closing,
    /// The zygote ends all remaining processes.
    Ended,
}

/// A requested worker.
pub(crate) type Fork = oneshot::Receiver<io::Result<ForkedWorker>>;

/// Sends requests to the zygote's supervisor.
#[derive(Clone)]
pub(crate) struct Zygote {
    pub(super) requests: mpsc::UnboundedSender<Request>,
    /// Number of workers that loaded the functions by themselves. Written by the supervisor.
    pub(super) loads: Arc<AtomicU64>,
}

/// Sender of a requested worker.
pub(super) type ForkReply = oneshot::Sender<io::Result<ForkedWorker>>;

pub(super) enum Request {
    Fork(ForkReply),
    /// Fork by a loader that forks no other worker, if possible.
    ForkApart(ForkReply),
    Reap(Reap),
    /// Modules that values need: workers forked from now on should have them.
    Preload(Vec<Arc<str>>),
    /// The zygote is not needed for a while.
    Rest,
}

/// A child that has ended.
pub(super) struct Reap {
    pub pid: Pid,
    pub mark: WorkerMark,
    /// The process that forked it.
    pub parent: Arc<Parent>,
    pub reply: oneshot::Sender<ExitStatus>,
}

/// The modules that a lane's values need.
#[derive(Default)]
pub(super) struct Modules {
    /// Their names. Added to by requests.
    pub names: Vec<Arc<str>>,
    /// Number of them that the loaders have imported, or must skip.
    pub done: usize,
    /// Number of workers forked before the loader existed.
    pub forks_before: usize,
}

impl Modules {
    /// Records that a new loader has imported none.
    pub(super) fn loader_started(&mut self, forks: usize) {
        (self.done, self.forks_before) = (0, forks);
    }
}

impl Zygote {
    /// Number of workers that loaded the functions by themselves, because no loaded process could
    /// be forked.
    pub(crate) fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    /// Requests a worker, which is sent on the returned channel.
    pub(crate) fn fork(&self) -> Fork {
        self.ask(Request::Fork)
    }

    /// Requests a worker with a dedicated loader.
    pub(crate) fn fork_apart(&self) -> Fork {
        self.ask(Request::ForkApart)
    }

    /// Requests that workers forked from now on have these modules.
    pub(crate) fn preload(&self, names: Vec<Arc<str>>) {
        // After the end of the supervisor no worker is forked.
        let _ = self.requests.send(Request::Preload(names));
    }

    fn ask(&self, request: impl FnOnce(ForkReply) -> Request) -> Fork {
        let (reply, worker) = oneshot::channel();
        // After the end of the supervisor the reply is dropped, which closes its channel.
        let _ = self.requests.send(request(reply));
        worker
    }

    /// Ends its processes until the next request; none of its workers may be left.
    pub(crate) fn rest(&self) {
        let _ = self.requests.send(Request::Rest); // a supervisor that is gone has ended them
    }

    /// Reaps a process that has ended, and kills the processes that it left behind; sends its exit
    /// status.
    pub(crate) fn reap(&self, child: &Child) -> oneshot::Receiver<ExitStatus> {
        let (reply, ending) = oneshot::channel();
        let (pid, mark, parent) = (child.pid, child.mark, child.parent.clone());
        let _ = self.requests.send(Request::Reap(Reap { pid, mark, parent, reply }));
        ending
    }
}
