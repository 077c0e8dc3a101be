//! The zygote: a clean interpreter that never runs user code, and its loader, which has loaded the
//! functions and forks workers.
//!
//! - Workers are forked by the loader if it is single-threaded once it has loaded. Else the loader
//!   becomes a worker, others load for themselves, and one loaded spare is kept.
//! - A zygote that ends is replaced at the next fork; what outlives it is found by its mark and
//!   killed.
//! - A stopped zygote is continued; one that stays stopped is replaced.
//! - One task serves all requests: reaps first, then forks, one by each loader at a time.

mod new_worker;
mod process;
mod requests;
mod rounds;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

use crate::blocking;
use crate::child::{Forked, Pidfd, WorkerMark, pid_from_message};
use crate::config::ProcessConfig;
use crate::exit_status::ExitStatus;
use crate::load_retries::LoadRetries;
use crate::output::Printer;
use crate::zygote_requests::{self, ZygoteSocket};
use new_worker::{NewWorker, answered_by, fork_by, is_refusal};
use process::{ANSWER, Load, Loader, LoaderClone, ZygoteProcess, start_loader, start_zygote, stay_stopped};
pub(super) use requests::{Fork, LaneStage, Zygote};
use requests::{Reap, Request};
use rounds::{Step, most_loaders, next_step};

/// How long the zygote may take to end everything, before it is killed.
const END: Duration = Duration::from_secs(2);
/// How long one loader forks for all, once there was no room for a process.
const ONE_LOADER: Duration = Duration::from_secs(60);

impl Zygote {
    /// Starts the supervisor, which starts the zygote. The second value is the supervisor's end,
    /// once the stage is `Ended`.
    pub(super) fn start(
        config: Arc<ProcessConfig>,
        load_timeout: Duration,
        forks_for_calls: bool,
        printer: Arc<Printer>,
        stage: watch::Receiver<LaneStage>,
    ) -> (Self, JoinHandle<()>) {
        let (requests, received) = mpsc::unbounded_channel();
        let loads = Arc::<AtomicU64>::default();
        let supervisor = ZygoteSupervisor {
            loads: loads.clone(),
            reaps: VecDeque::new(),
            asked: VecDeque::new(),
            most_loaders: most_loaders(config.workers, forks_for_calls),
            one_loader_until: None,
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
}

struct ZygoteSupervisor {
    loads: Arc<AtomicU64>,
    config: Arc<ProcessConfig>,
    load_timeout: Duration,
    printer: Arc<Printer>,
    zygote: Option<ZygoteProcess>,
    reaps: VecDeque<Reap>,
    /// Who waits for a worker.
    asked: VecDeque<oneshot::Sender<io::Result<Forked>>>,
    most_loaders: usize,
    one_loader_until: Option<Instant>,
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
            while let Ok(request) = requests.try_recv() {
                self.note(request);
            }
            let loaders = self.zygote.as_ref().map_or(0, ZygoteProcess::loaders);
            let most =
                if self.one_loader_until.is_some_and(|until| Instant::now() < until) { 1 } else { self.most_loaders };
            match next_step(self.reaps.len(), self.asked.len(), loaders, most) {
                Step::Wait => tokio::select! {
                    _ = stage.wait_for(|stage| *stage == LaneStage::Ended) => break,
                    request = requests.recv() => match request {
                        Some(request) => self.note(request),
                        None => break,
                    },
                    () = gone(&self.zygote) => self.lose_stem(),
                },
                Step::Reap => {
                    let Some(Reap { pid, mark, parent, reply }) = self.reaps.pop_front() else { continue };
                    tokio::select! {
                        biased;
                        _ = stage.wait_for(|stage| *stage == LaneStage::Ended) => break,
                        ending = self.answered(async |supervisor| Ok(supervisor.reap(pid, mark, &parent).await)) => {
                            let _ = reply.send(ending.unwrap_or(ExitStatus::Unknown));
                        }
                    }
                }
                Step::Clone => tokio::select! {
                    biased;
                    _ = stage.wait_for(|stage| *stage > LaneStage::Open) => self.asked.clear(),
                    () = self.clone_loader() => {}
                },
                Step::Fork(count) => {
                    let asked = self.asked.drain(..count).collect();
                    tokio::select! {
                        biased;
                        _ = stage.wait_for(|stage| *stage > LaneStage::Open) => {}
                        () = self.fork_round(asked) => {}
                    }
                }
            }
        }
        self.end().await;
    }

    fn note(&mut self, request: Request) {
        match request {
            Request::Fork(reply) => self.asked.push_back(reply),
            Request::Reap(reap) => self.reaps.push_back(reap),
        }
    }

    /// Forks a worker for each, by as many loaders at the same time.
    async fn fork_round(&mut self, asked: Vec<oneshot::Sender<io::Result<Forked>>>) {
        let mut again = Vec::new();
        if asked.len() < 2 || self.prepared().await.is_err() {
            again = asked;
        } else {
            let mut round = JoinSet::new();
            let mut loaders = self.zygote.iter().flat_map(ZygoteProcess::forking);
            for reply in asked {
                match loaders.next() {
                    Some((control, pid, alive)) => {
                        let ask = async move { (answered_by(pid, fork_by(&control, alive)).await, pid, reply) };
                        round.spawn(ask);
                    }
                    None => again.push(reply),
                }
            }
            drop(loaders);
            while let Some(forked) = round.join_next().await {
                let Ok((forked, pid, reply)) = forked else { continue };
                match forked {
                    Err(error) if !is_refusal(&error) => {
                        // It is lost or out of step.
                        if let Some(zygote) = &self.zygote {
                            zygote.kill_loader(pid).await;
                        }
                        again.push(reply);
                    }
                    // The others may stand where it should.
                    Err(_) if self.has_clones() => again.push(reply),
                    forked => {
                        self.forks += usize::from(forked.is_ok());
                        let _ = reply.send(forked);
                    }
                }
            }
        }
        for reply in again {
            let mut forked = self.fork().await;
            if forked.as_ref().is_err_and(is_refusal) && self.has_clones() {
                self.end_clones().await;
                forked = self.fork().await;
            }
            // If whoever asked has gone, the child ends as its socket does.
            let _ = reply.send(forked);
        }
    }

    /// Has the loader fork another.
    async fn clone_loader(&mut self) {
        let made = self.answered(async |supervisor| supervisor.ask_for_loader().await).await;
        if made.is_err() {
            // There may be no room for more, and so none for workers.
            self.end_clones().await;
        }
    }

    fn has_clones(&self) -> bool {
        self.zygote.as_ref().is_some_and(|zygote| !zygote.clones.is_empty())
    }

    /// Makes room for workers: where there is none for a process, one loader forks for all.
    async fn end_clones(&mut self) {
        self.one_loader_until = Some(Instant::now() + ONE_LOADER);
        if let Some(zygote) = &self.zygote {
            zygote.kill_clones().await;
        }
    }

    async fn ask_for_loader(&mut self) -> io::Result<()> {
        self.prepared().await?;
        let Some(zygote) = &mut self.zygote else { return Err(io::ErrorKind::NotConnected.into()) };
        let Loader::Forks(first, ..) = &zygote.loader else { return Ok(()) };
        let (control, theirs) = ZygoteSocket::new()?;
        first.send(zygote_requests::LOADER, 0, 0, &[theirs.as_fd()]).await?;
        let pid = pid_from_message(first.reply_to(zygote_requests::LOADER).await?.value)?;
        let clone = LoaderClone::new(control, pid, Pidfd::open(pid)?);
        // Before the first worker: they are not to be reaped unasked when it ends.
        zygote
            .control
            .send(zygote_requests::KNOW, 0, u64::from(pid.as_raw_nonzero().get().unsigned_abs()), &[])
            .await?;
        zygote.clones.push(clone);
        Ok(())
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
                Err(error) if is_refusal(error) => break,
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
        let alive = zygote.alive.clone();
        let control = match &zygote.loader {
            Loader::Forks(control, .., alive) => {
                let (control, alive) = (control.clone(), alive.clone());
                return fork_by(&control, alive).await;
            }
            Loader::Becomes(control, pid) => {
                let new = NewWorker::new()?;
                new.send(control, zygote_requests::BECOME, 0).await?;
                control.reply_to(zygote_requests::BECOME).await?;
                let pid = *pid;
                zygote.loader = Loader::Absent;
                self.loads.fetch_add(1, Ordering::Relaxed);
                return new.forked(pid, alive);
            }
            Loader::None | Loader::Absent => &zygote.control,
        };
        let flags = if load_late { 0 } else { zygote_requests::LOAD_FIRST };
        let new = NewWorker::new()?;
        new.send(control, zygote_requests::WORKER, flags).await?;
        let pid = pid_from_message(control.reply_to(zygote_requests::WORKER).await?.value)?;
        self.loads.fetch_add(1, Ordering::Relaxed);
        new.forked(pid, alive)
    }

    async fn reap(&mut self, pid: Pid, mark: WorkerMark, parent: &Arc<AtomicBool>) -> ExitStatus {
        let Some(zygote) = &self.zygote else { return ExitStatus::Unknown };
        // What it left became the zygote's when it ended; a lost zygote shows at the next request.
        let _ = zygote.control.send(zygote_requests::ORPHANS, 0, mark.0, &[]).await;
        let forked_it = zygote.forking().find(|(.., alive)| Arc::ptr_eq(alive, parent));
        if let Some((control, ..)) = forked_it
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
        zygote.forget_ended_loaders().await?;
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
