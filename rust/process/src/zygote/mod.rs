//! The zygote: a clean interpreter that never runs user code, and its loader, which has loaded the
//! functions and forks workers.
//!
//! - Workers are forked by the loader if it has a single thread after loading. Otherwise the loader
//!   becomes a worker, others load by themselves, and one loaded worker is kept in reserve.
//! - A zygote that ends, or stays stopped, is replaced at the next fork; processes that outlive it
//!   are found by its mark and killed. The suspects' zygote starts with the first of them, and
//!   rests after them.
//! - One task serves all requests: reaps first, then forks, one by each loader at a time.

mod loaders;
mod new_worker;
mod preload;
mod process;
mod requests;
mod rounds;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::blocking;
use crate::child::{ForkedWorker, pid_from_message};
use crate::config::ProcessConfig;
use crate::exit_status::ExitStatus;
use crate::load_retries::LoadRetries;
use crate::output::Printer;
use crate::zygote_requests;
use new_worker::{NewWorker, fork_by, is_refusal};
use process::{ANSWER, Load, Loader, NewLoader, ZygoteProcess, start_zygote, stay_stopped};
pub(super) use requests::{Fork, LaneStage, Zygote};
use requests::{ForkReply, Modules, Reap, Request};
use rounds::{Step, most_loaders, next_step};

/// Time in which the zygote must end all processes before it is killed.
const END: Duration = Duration::from_secs(2);

/// The time when the zygote's process starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// The zygote starts at once, so that the functions may be loaded at the first request.
    AtOnce,
    /// The zygote starts with the first request.
    WhenAsked,
}

impl Zygote {
    /// Starts the supervisor, which starts the zygote. The second value is the supervisor's end,
    /// once the stage is `Ended`.
    pub(super) fn start(
        config: Arc<ProcessConfig>,
        load_timeout: Duration,
        forks_for_calls: bool,
        printer: Arc<Printer>,
        stage: watch::Receiver<LaneStage>,
        begin: Begin,
    ) -> (Self, JoinHandle<()>) {
        let (requests, received) = mpsc::unbounded_channel();
        let loads = Arc::<AtomicU64>::default();
        let supervisor = ZygoteSupervisor {
            loads: loads.clone(),
            reaps: VecDeque::new(),
            asked: VecDeque::new(),
            asked_apart: VecDeque::new(),
            rests: false,
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
            modules: Modules::default(),
        };
        (Self { requests, loads }, tokio::spawn(supervisor.run(received, stage, begin)))
    }
}

struct ZygoteSupervisor {
    loads: Arc<AtomicU64>,
    config: Arc<ProcessConfig>,
    load_timeout: Duration,
    printer: Arc<Printer>,
    zygote: Option<ZygoteProcess>,
    reaps: VecDeque<Reap>,
    /// Requests for a worker.
    asked: VecDeque<ForkReply>,
    /// Requests for a worker with a dedicated loader.
    asked_apart: VecDeque<ForkReply>,
    /// True if it was requested to rest.
    rests: bool,
    most_loaders: usize,
    one_loader_until: Option<Instant>,
    /// Workers forked so far.
    forks: usize,
    /// Decides whether a loader is tried.
    loading: LoadRetries,
    spare: Option<ForkedWorker>,
    /// Lost zygotes whose ends are waited for, and whose remaining processes are killed.
    leavings: Vec<oneshot::Receiver<()>>,
    modules: Modules,
}

impl ZygoteSupervisor {
    async fn run(
        mut self,
        mut requests: mpsc::UnboundedReceiver<Request>,
        mut stage: watch::Receiver<LaneStage>,
        begin: Begin,
    ) {
        if begin == Begin::AtOnce {
            // A failure occurs again at the first fork, and is reported then.
            tokio::select! {
                _ = stage.wait_for(|stage| *stage > LaneStage::Open) => {}
                () = async {
                    if self.prepared().await.is_err() {
                        self.lose_stem();
                    }
                } => {}
            }
        }
        loop {
            while let Ok(request) = requests.try_recv() {
                self.note(request);
            }
            if self.reaps.is_empty()
                && let Some(reply) = self.asked_apart.pop_front()
            {
                // The suspects come first: a call that may have ended a zygote must not delay
                // others.
                tokio::select! {
                    biased;
                    _ = stage.wait_for(|stage| *stage > LaneStage::Open) => {}
                    forked = self.fork_apart() => {
                        // If the receiver is gone, the lane closes.
                        let _ = reply.send(forked);
                    }
                }
                continue;
            }
            let loaders = self.zygote.as_ref().map_or(0, |zygote| zygote.shared_loaders().count());
            let most =
                if self.one_loader_until.is_some_and(|until| Instant::now() < until) { 1 } else { self.most_loaders };
            match next_step(self.reaps.len(), self.asked.len(), loaders, most) {
                Step::Wait if std::mem::take(&mut self.rests) => self.end_zygote().await,
                Step::Wait => tokio::select! {
                    _ = stage.wait_for(|stage| *stage == LaneStage::Ended) => break,
                    request = requests.recv() => match request {
                        Some(request) => self.note(request),
                        None => break,
                    },
                    () = gone(&self.zygote) => self.lose_stem(),
                },
                Step::Reap => {
                    let Some(ended) = self.reaps.pop_front() else { continue };
                    tokio::select! {
                        biased;
                        _ = stage.wait_for(|stage| *stage == LaneStage::Ended) => break,
                        ending = self.answered(async |supervisor| Ok(supervisor.reap(&ended).await)) => {
                            let _ = ended.reply.send(ending.unwrap_or(ExitStatus::Unknown));
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
        // A request for a worker needs the processes that a rest would end.
        self.rests &= !matches!(request, Request::Fork(_) | Request::ForkApart(_));
        match request {
            Request::Fork(reply) => self.asked.push_back(reply),
            Request::ForkApart(reply) => self.asked_apart.push_back(reply),
            Request::Reap(reap) => self.reaps.push_back(reap),
            Request::Preload(names) => self.modules.names.extend(names),
            Request::Rest => self.rests = true,
        }
    }

    async fn fork(&mut self) -> io::Result<ForkedWorker> {
        let given = match self.spare.take() {
            Some(spare) if spare.child.parent.is_alive() => spare,
            _ => self.fork_now().await?,
        };
        self.forks += 1;
        let loads_itself = self.zygote.as_ref().is_some_and(|zygote| matches!(zygote.loader, Loader::Absent));
        if loads_itself && !self.loading.is_late() && self.forks >= self.config.workers {
            // If this fails, the next replacement loads by itself, which is only slower.
            self.spare = self.fork_now().await.ok();
        }
        Ok(given)
    }

    async fn fork_now(&mut self) -> io::Result<ForkedWorker> {
        let mut result = Err(io::ErrorKind::NotConnected.into());
        for _ in 0..2 {
            if let Err(error) = self.prepared().await {
                self.lose_stem();
                result = Err(error);
                continue;
            }
            result = self.answered(async |supervisor| supervisor.request_worker().await).await;
            match &result {
                Ok(_) => break,
                // The error comes from fork() itself, and the zygote works.
                Err(error) if is_refusal(error) => break,
                // The zygote is lost, or answers are out of step.
                Err(_) => self.lose_stem(),
            }
        }
        result
    }

    /// Returns the answer of the zygote; an error if it does not answer in time.
    async fn answered<T>(&mut self, ask: impl AsyncFnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        let asked = self.zygote.iter().flat_map(ZygoteProcess::pids).collect();
        tokio::select! {
            answer = timeout(ANSWER, ask(self)) => answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
            () = stay_stopped(asked) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    async fn request_worker(&mut self) -> io::Result<ForkedWorker> {
        let load_late = self.loading.is_late();
        let Some(zygote) = &mut self.zygote else { return Err(io::ErrorKind::NotConnected.into()) };
        let parent = zygote.parent.clone();
        let control = match &zygote.loader {
            Loader::Forks(control, _, parent) => {
                let (control, parent) = (control.clone(), parent.clone());
                return fork_by(&control, parent).await;
            }
            Loader::Becomes(control, pid) => {
                let new = NewWorker::new()?;
                new.send(control, zygote_requests::BECOME, 0).await?;
                control.reply_to(zygote_requests::BECOME).await?;
                let pid = *pid;
                zygote.loader = Loader::Absent;
                self.loads.fetch_add(1, Ordering::Relaxed);
                return new.forked(pid, parent);
            }
            Loader::None | Loader::Absent | Loader::Tried(_) => &zygote.control,
        };
        let flags = if load_late { 0 } else { zygote_requests::LOAD_FIRST };
        let new = NewWorker::new()?;
        new.send(control, zygote_requests::WORKER, flags).await?;
        let pid = pid_from_message(control.reply_to(zygote_requests::WORKER).await?.value)?;
        self.loads.fetch_add(1, Ordering::Relaxed);
        new.forked(pid, parent)
    }

    async fn reap(&mut self, ended: &Reap) -> ExitStatus {
        let Some(zygote) = &self.zygote else { return ExitStatus::Unknown };
        // The zygote inherited its orphans; a lost zygote is detected at the next request.
        let _ = zygote.control.send(zygote_requests::ORPHANS, 0, ended.mark.0, &[]).await;
        let forked_it = zygote.loaders().find(|loader| Arc::ptr_eq(&loader.parent, &ended.parent));
        let of_loader = match &forked_it {
            Some(loader) => loader.control.reap(ended.pid).await.unwrap_or(ExitStatus::Unknown),
            None => ExitStatus::Unknown,
        };
        let ending = match of_loader {
            // The parent was the zygote, or a loader that has ended, whose children the zygote
            // inherited.
            ExitStatus::Unknown => zygote.control.reap(ended.pid).await.unwrap_or(ExitStatus::Unknown),
            known => known,
        };
        if let Some(loader) = forked_it.filter(|loader| loader.parent.is_of_one()) {
            self.end_loader(loader.pid).await;
        }
        ending
    }

    /// Starts a zygote and a loader if they are missing, and makes the loaders import the modules
    /// of values.
    async fn prepared(&mut self) -> io::Result<()> {
        self.prepared_without_modules().await?;
        while !self.preload().await {
            self.prepared_without_modules().await?;
        }
        Ok(())
    }

    async fn prepared_without_modules(&mut self) -> io::Result<()> {
        if self.zygote.as_ref().is_some_and(|zygote| !zygote.parent.is_alive()) {
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
            let load = NewLoader::start(zygote).await?.loaded(self.load_timeout);
            zygote.loader = Loader::Tried(tokio::spawn(load));
        }
        while let Some(zygote) = &mut self.zygote {
            let load = match &mut zygote.loader {
                Loader::None if self.loading.is_late() => {
                    zygote.loader = Loader::Absent;
                    break;
                }
                Loader::None => NewLoader::start(zygote).await?.loaded(self.load_timeout).await?,
                Loader::Tried(load) if load.is_finished() => load.await.map_err(io::Error::other)??,
                Loader::Tried(_) | Loader::Forks(..) | Loader::Becomes(..) | Loader::Absent => break,
            };
            self.take_over(load).await?;
        }
        Ok(())
    }

    /// Takes over a loader that has loaded the functions; one that failed is counted and reaped.
    async fn take_over(&mut self, load: Load) -> io::Result<()> {
        let Some(zygote) = &mut self.zygote else { return Ok(()) };
        match load {
            Load::Done(loader) => {
                zygote.loader = loader;
                self.loading.done();
                self.modules.loader_started(self.forks);
                Ok(())
            }
            Load::Failed { pid, hung } => {
                zygote.loader = Loader::None;
                if hung {
                    self.loading.hung();
                } else {
                    self.loading.ended(Instant::now());
                }
                zygote.reap(pid).await.map(drop)
            }
        }
    }

    fn lose_stem(&mut self) {
        self.spare = None;
        if let Some(mut zygote) = self.zygote.take() {
            zygote.lost();
            // It has ended, or its answers are out of step: it must end in both cases, and be
            // waited for.
            let _ = zygote.parent.pidfd.signal(Signal::KILL);
            self.leavings.retain_mut(|left| matches!(left.try_recv(), Err(TryRecvError::Empty)));
            self.leavings.push(blocking::run(move || {
                // a failure to wait for it can't be reported to anyone
                let _ = zygote.process.wait();
                zygote.token.sweep();
            }));
        }
    }

    /// Ends the zygote, and waits for the remaining processes of lost ones.
    async fn end(&mut self) {
        self.end_zygote().await;
        for left in self.leavings.drain(..) {
            let _ = left.await;
        }
    }

    /// Ends the zygote, which ends all other processes.
    async fn end_zygote(&mut self) {
        self.spare = None;
        if let Some(mut zygote) = self.zygote.take() {
            let _ = zygote.parent.pidfd.signal(Signal::CONT); // it may have been stopped
            let asked = zygote.control.send(zygote_requests::END, 0, 0, &[]).await;
            if asked.is_err() || timeout(END, zygote.parent.pidfd.ended()).await.is_err() {
                let _ = zygote.parent.pidfd.signal(Signal::KILL);
                zygote.parent.pidfd.ended().await;
            }
            zygote.lost();
            // It has ended, so this does not block.
            if !zygote.process.wait().is_ok_and(|status| status.success()) {
                self.leavings.push(blocking::run(move || zygote.token.sweep()));
            }
            let _ = zygote.reader.await;
        }
    }
}

/// Waits for the end of the zygote; for ever without one.
async fn gone(zygote: &Option<ZygoteProcess>) {
    match zygote {
        Some(zygote) => zygote.parent.pidfd.ended().await,
        None => std::future::pending().await,
    }
}
