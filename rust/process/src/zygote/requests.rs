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
    /// Workers are sent away, and none is forked.
    Closing,
    /// The zygote ends all remaining processes.
    Ended,
}

/// A worker that was asked for.
pub(crate) type Fork = oneshot::Receiver<io::Result<ForkedWorker>>;

/// Asks the zygote's supervisor.
#[derive(Clone)]
pub(crate) struct Zygote {
    pub(super) requests: mpsc::UnboundedSender<Request>,
    /// Workers that loaded the functions themselves. Written by the supervisor.
    pub(super) loads: Arc<AtomicU64>,
}

/// Receiver of a requested worker.
pub(super) type ForkReply = oneshot::Sender<io::Result<ForkedWorker>>;

pub(super) enum Request {
    Fork(ForkReply),
    /// Fork by a loader that forks no other worker, if there can be one.
    ForkApart(ForkReply),
    Reap(Reap),
    /// Modules that values need: workers that are forked from now on shall have them.
    Preload(Vec<Arc<str>>),
    /// Nothing of it is needed for a while.
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
    /// Number of them that the loaders have imported, or must not import.
    pub done: usize,
    /// Workers that were forked before the loader was there.
    pub forks_before: usize,
}

impl Modules {
    /// A new loader has imported none.
    pub(super) fn loader_started(&mut self, forks: usize) {
        (self.done, self.forks_before) = (0, forks);
    }
}

impl Zygote {
    /// Workers that loaded the functions themselves, because no loaded process could be forked.
    pub(crate) fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    /// Asks for a worker; it comes on the returned channel.
    pub(crate) fn fork(&self) -> Fork {
        self.ask(Request::Fork)
    }

    /// Asks for a worker that has a loader to itself.
    pub(crate) fn fork_apart(&self) -> Fork {
        self.ask(Request::ForkApart)
    }

    /// Has workers that are forked from now on come with these modules.
    pub(crate) fn preload(&self, names: Vec<Arc<str>>) {
        // A supervisor that is gone forks nobody.
        let _ = self.requests.send(Request::Preload(names));
    }

    fn ask(&self, request: impl FnOnce(ForkReply) -> Request) -> Fork {
        let (reply, worker) = oneshot::channel();
        // A supervisor that is gone drops the reply, which says so.
        let _ = self.requests.send(request(reply));
        worker
    }

    /// Ends its processes until the next request; none of its workers is left.
    pub(crate) fn rest(&self) {
        let _ = self.requests.send(Request::Rest); // a supervisor that is gone has ended them
    }

    /// Reaps a process that has ended, and kills the processes that it left behind; how it did.
    pub(crate) fn reap(&self, child: &Child) -> oneshot::Receiver<ExitStatus> {
        let (reply, ending) = oneshot::channel();
        let (pid, mark, parent) = (child.pid, child.mark, child.parent.clone());
        let _ = self.requests.send(Request::Reap(Reap { pid, mark, parent, reply }));
        ending
    }
}
