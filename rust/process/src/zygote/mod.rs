//! The zygote: a clean interpreter that never runs user code, and its loader, which has loaded the
//! functions and forks workers.
//!
//! - Workers are forked by the loader if it is single-threaded once it has loaded. Else the loader
//!   becomes a worker, others load for themselves, and one loaded spare is kept.
//! - A zygote that ends is replaced at the next fork; what outlives it is found by its mark and
//!   killed.
//! - A stopped zygote is continued; one that stays stopped is replaced.
//! - One task serves all requests, in order.

mod process;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::blocking;
use crate::child::{Child, Forked, Pidfd, WorkerMark, pid_from_message};
use crate::config::ProcessConfig;
use crate::exit_status::ExitStatus;
use crate::load_retries::LoadRetries;
use crate::output::{self, Printer};
use crate::shared_page::SharedPage;
use crate::stack_file::StackFile;
use crate::zygote_requests;
use process::{ANSWER, Load, Loader, ZygoteProcess, start_loader, start_zygote, stay_stopped};

/// How long the zygote may take to end everything, before it is killed.
const END: Duration = Duration::from_secs(2);

/// How far the lane is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LaneStage {
    Open,
    /// Workers are sent away, and none is forked.
    Closing,
    /// What is left is the zygote's to end.
    Ended,
}

/// A worker that was asked for.
pub(super) type Fork = oneshot::Receiver<io::Result<Forked>>;

/// Asks the zygote's supervisor.
#[derive(Clone)]
pub(super) struct Zygote {
    requests: mpsc::UnboundedSender<Request>,
    /// Workers that loaded the functions themselves. Written by the supervisor.
    loads: Arc<AtomicU64>,
}

enum Request {
    Fork(oneshot::Sender<io::Result<Forked>>),
    Reap(Pid, WorkerMark, oneshot::Sender<ExitStatus>),
}

impl Zygote {
    /// Starts the supervisor, which starts the zygote. The second value is the supervisor's end,
    /// once the stage is `Ended`.
    pub(super) fn start(
        config: Arc<ProcessConfig>,
        load_timeout: Duration,
        printer: Arc<Printer>,
        stage: watch::Receiver<LaneStage>,
    ) -> (Self, JoinHandle<()>) {
        let (requests, received) = mpsc::unbounded_channel();
        let loads = Arc::<AtomicU64>::default();
        let supervisor = ZygoteSupervisor {
            loads: loads.clone(),
            config,
            load_timeout,
            printer,
            zygote: None,
            forks: 0,
            loading: LoadRetries::default(),
            spare: None,
            leavings: Vec::new(),
        };
        (Self { requests, loads }, tokio::spawn(supervisor.run(received, stage)))
    }

    /// Workers that loaded the functions themselves, because no loaded process could be forked.
    pub(super) fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    /// Asks for a worker; it comes on the returned channel.
    pub(super) fn fork(&self) -> Fork {
        let (reply, worker) = oneshot::channel();
        // A supervisor that is gone drops the reply, which says so.
        let _ = self.requests.send(Request::Fork(reply));
        worker
    }

    /// Takes leave of a process that has ended, and has killed what it left behind; how it did.
    pub(super) fn reap(&self, child: &Child) -> oneshot::Receiver<ExitStatus> {
        let (reply, ending) = oneshot::channel();
        let _ = self.requests.send(Request::Reap(child.pid, child.mark, reply));
        ending
    }
}

struct ZygoteSupervisor {
    loads: Arc<AtomicU64>,
    config: Arc<ProcessConfig>,
    load_timeout: Duration,
    printer: Arc<Printer>,
    zygote: Option<ZygoteProcess>,
    /// Workers forked so far.
    forks: usize,
    /// Whether there is to be a loader.
    loading: LoadRetries,
    spare: Option<Forked>,
    /// Lost stems that are waited for and whose leavings are killed.
    leavings: Vec<oneshot::Receiver<()>>,
}

impl ZygoteSupervisor {
    async fn run(mut self, mut requests: mpsc::UnboundedReceiver<Request>, mut stage: watch::Receiver<LaneStage>) {
        // Before the first request: by then the functions may be loaded. A failure shows again, and
        // is told, at the first fork.
        tokio::select! {
            _ = stage.wait_for(|stage| *stage > LaneStage::Open) => {}
            () = async {
                if self.prepared().await.is_err() {
                    self.lose_stem();
                }
            } => {}
        }
        loop {
            let request = tokio::select! {
                _ = stage.wait_for(|stage| *stage == LaneStage::Ended) => break,
                request = requests.recv() => request,
                () = gone(&self.zygote) => {
                    self.lose_stem();
                    continue;
                }
            };
            match request {
                None => break,
                Some(Request::Fork(reply)) => tokio::select! {
                    biased;
                    _ = stage.wait_for(|stage| *stage > LaneStage::Open) => {}
                    child = self.fork() => {
                        // If whoever asked has gone, the child ends as its socket does.
                        let _ = reply.send(child);
                    }
                },
                Some(Request::Reap(pid, mark, reply)) => tokio::select! {
                    biased;
                    _ = stage.wait_for(|stage| *stage == LaneStage::Ended) => break,
                    ending = self.answered(async |supervisor| Ok(supervisor.reap(pid, mark).await)) => {
                        let _ = reply.send(ending.unwrap_or(ExitStatus::Unknown));
                    }
                },
            }
        }
        self.end().await;
    }

    async fn fork(&mut self) -> io::Result<Forked> {
        let given = match self.spare.take() {
            Some(spare) if spare.child.zygote_alive.load(Ordering::Acquire) => spare,
            _ => self.fork_now().await?,
        };
        self.forks += 1;
        let loads_itself = self.zygote.as_ref().is_some_and(|zygote| matches!(zygote.loader, Loader::Absent));
        if loads_itself && !self.loading.is_late() && self.forks >= self.config.workers {
            // Without a spare the next replacement loads by itself: slower, not wrong.
            self.spare = self.fork_now().await.ok();
        }
        Ok(given)
    }

    async fn fork_now(&mut self) -> io::Result<Forked> {
        let mut result = Err(io::ErrorKind::NotConnected.into());
        for _ in 0..2 {
            if let Err(error) = self.prepared().await {
                self.lose_stem();
                result = Err(error);
                continue;
            }
            result = self.answered(async |supervisor| supervisor.ask_for_worker().await).await;
            match &result {
                Ok(_) => break,
                // What fork() itself said: the zygote is well.
                Err(error)
                    if error.raw_os_error().is_some_and(|errno| errno != rustix::io::Errno::PIPE.raw_os_error()) =>
                {
                    break;
                }
                // The zygote is lost or out of step.
                Err(_) => self.lose_stem(),
            }
        }
        result
    }

    /// What the zygote answers; an error when it doesn't, in time or ever.
    async fn answered<T>(&mut self, ask: impl AsyncFnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        let asked = self.zygote.iter().flat_map(ZygoteProcess::pids).collect();
        tokio::select! {
            answer = timeout(ANSWER, ask(self)) => answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
            () = stay_stopped(asked) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    async fn ask_for_worker(&mut self) -> io::Result<Forked> {
        let load_late = self.loading.is_late();
        let Some(zygote) = &mut self.zygote else { return Err(io::ErrorKind::NotConnected.into()) };
        let (socket, their_socket) = zygote_requests::pair()?;
        let stack = StackFile::new()?;
        let page = SharedPage::new(&stack)?;
        let (output, their_output) = output::pipe()?;
        let fds = [their_socket.as_fd(), page.fd(), their_output.as_fd(), stack.fd()];
        // Kept until the child's pidfd takes its guard: that must not be the one for which there is
        // no room, when the child is there already.
        let reserve = output::duplicate(page.fd())?;
        let mark = WorkerMark::new();
        let mut zygote_alive = zygote.alive.clone();
        let pid = match &zygote.loader {
            Loader::Forks(control, .., alive) => {
                zygote_alive = alive.clone();
                control.send(zygote_requests::WORKER, 0, mark.0, &fds).await?;
                pid_from_message(control.reply_to(zygote_requests::WORKER).await?.value)?
            }
            Loader::Becomes(control, pid) => {
                control.send(zygote_requests::BECOME, 0, mark.0, &fds).await?;
                control.reply_to(zygote_requests::BECOME).await?;
                let pid = *pid;
                zygote.loader = Loader::Absent;
                self.loads.fetch_add(1, Ordering::Relaxed);
                pid
            }
            Loader::None | Loader::Absent => {
                let flags = if load_late { 0 } else { zygote_requests::LOAD_FIRST };
                zygote.control.send(zygote_requests::WORKER, flags, mark.0, &fds).await?;
                pid_from_message(zygote.control.reply_to(zygote_requests::WORKER).await?.value)
                    .inspect(|_| _ = self.loads.fetch_add(1, Ordering::Relaxed))?
            }
        };
        drop(reserve);
        let child = Child { pid, pidfd: Pidfd::open(pid)?, mark, page, stack, zygote_alive };
        Ok(Forked { child, socket, output })
    }

    async fn reap(&mut self, pid: Pid, mark: WorkerMark) -> ExitStatus {
        let Some(zygote) = &self.zygote else { return ExitStatus::Unknown };
        // What it left became the zygote's when it ended; a lost zygote shows at the next request.
        let _ = zygote.control.send(zygote_requests::ORPHANS, 0, mark.0, &[]).await;
        if let Loader::Forks(control, ..) = &zygote.loader
            && let Ok(ending @ (ExitStatus::Exited(_) | ExitStatus::Killed(_))) = control.reap(pid).await
        {
            return ending;
        }
        // A worker that the zygote forked, or of a loader that has ended: the zygote inherited it.
        zygote.control.reap(pid).await.unwrap_or(ExitStatus::Unknown)
    }

    /// Makes sure of a zygote and of what forks workers.
    async fn prepared(&mut self) -> io::Result<()> {
        if self.zygote.as_ref().is_some_and(|zygote| !zygote.alive.load(Ordering::Acquire)) {
            self.lose_stem();
        }
        let zygote = match &mut self.zygote {
            Some(zygote) => zygote,
            None => {
                let zygote = start_zygote(&self.config, &self.printer).await?;
                self.zygote.insert(zygote)
            }
        };
        if let Loader::Forks(_, pid, pidfd, alive) = &zygote.loader {
            let pid = *pid;
            let lost = timeout(Duration::ZERO, pidfd.ended()).await.is_ok();
            if lost {
                // In this order: its workers are the zygote's to reap, unasked, once it is gone.
                alive.store(false, Ordering::Release);
                zygote.loader = Loader::None;
                zygote.reap(pid).await?;
            }
        }
        if matches!(zygote.loader, Loader::Absent) && self.loading.tries_again(Instant::now()) {
            zygote.loader = Loader::None;
        }
        while matches!(zygote.loader, Loader::None) {
            if self.loading.is_late() {
                zygote.loader = Loader::Absent;
                break;
            }
            match start_loader(zygote, self.load_timeout).await? {
                Load::Done(loader) => {
                    zygote.loader = loader;
                    self.loading.done();
                }
                Load::Ended => self.loading.ended(Instant::now()),
                Load::Hung => self.loading.hung(),
            }
        }
        Ok(())
    }

    fn lose_stem(&mut self) {
        self.spare = None;
        if let Some(mut zygote) = self.zygote.take() {
            zygote.lost();
            // It has ended, or is out of step: either way it has to go, and be waited for.
            let _ = zygote.pidfd.signal(Signal::KILL);
            self.leavings.retain_mut(|left| matches!(left.try_recv(), Err(TryRecvError::Empty)));
            self.leavings.push(blocking::run(move || {
                // it can't be said to anyone that it was not ours to wait for
                let _ = zygote.process.wait();
                zygote.token.sweep();
            }));
        }
    }

    /// Ends the zygote, which ends all others.
    async fn end(&mut self) {
        self.spare = None;
        if let Some(mut zygote) = self.zygote.take() {
            let _ = zygote.pidfd.signal(Signal::CONT); // it may have been stopped
            let asked = zygote.control.send(zygote_requests::END, 0, 0, &[]).await;
            if asked.is_err() || timeout(END, zygote.pidfd.ended()).await.is_err() {
                let _ = zygote.pidfd.signal(Signal::KILL);
                zygote.pidfd.ended().await;
            }
            zygote.lost();
            // It has ended: this does not wait.
            if !zygote.process.wait().is_ok_and(|status| status.success()) {
                self.leavings.push(blocking::run(move || zygote.token.sweep()));
            }
            let _ = zygote.reader.await;
        }
        for left in self.leavings.drain(..) {
            let _ = left.await;
        }
    }
}

/// Waits for the end of the zygote; for ever without one.
async fn gone(zygote: &Option<ZygoteProcess>) {
    match zygote {
        Some(zygote) => zygote.pidfd.ended().await,
        None => std::future::pending().await,
    }
}
