//! The zygote: the stem, which never runs user code, and the loader, which has loaded the functions and forks workers that have them.
//!
//! - Z-1  The trainer is never forked: the stem is a fresh interpreter, with its control socket as standard input, in a process group of its own.
//! - Z-2  Workers are forked by the loader if it is single-threaded once it has loaded. Else the loader becomes a worker itself, the stem forks
//!   workers that load for themselves, and one loaded spare is kept.
//! - Z-3  A loader that dies or hangs while loading costs no function but the one to blame: workers then load each function when it is first called,
//!   in its own `setup_timeout` (`loading` says when, and until when).
//! - Z-4  A stem that ends is replaced at the next fork; its workers have ended with it.
//! - Z-5  What outlives a stem that did not end by itself is found by its token and killed.
//! - Z-6  A zygote that is stopped is told to go on; one that stays so is replaced. That is looked at only while it owes an answer.
//! - Z-7  One task keeps all of this: requests are served one at a time, in order.

mod stem;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::child::{Child, Forked, Pidfd, told_pid};
use crate::config::ProcessConfig;
use crate::control;
use crate::exit_status::Ending;
use crate::loading::Loading;
use crate::output::{self, Printer};
use crate::shared_page::Page;
use crate::stack_file::Stack;
use stem::{Load, Loader, Stem, start_loader, start_stem, stay_stopped};

/// How long the zygote may take to answer what it does at once.
const ANSWER: Duration = Duration::from_secs(20);
/// How long the stem may take to end everything, before it is killed.
const END: Duration = Duration::from_secs(2);

/// How far the lane is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Open,
    /// Workers are sent away, and none is forked.
    Closing,
    /// What is left is the zygote's to end.
    Ended,
}

/// A worker that was asked for.
pub(super) type Fork = oneshot::Receiver<io::Result<Forked>>;

/// Asks the zygote's keeper.
#[derive(Clone)]
pub(super) struct Zygote {
    requests: mpsc::UnboundedSender<Request>,
}

enum Request {
    Fork(oneshot::Sender<io::Result<Forked>>),
    Reap(Pid, oneshot::Sender<Ending>),
}

impl Zygote {
    /// Starts the keeper, which starts the zygote. The second value is the keeper's end, once the stage is `Ended`.
    pub(super) fn start(
        config: Arc<ProcessConfig>,
        load_timeout: Duration,
        printer: Arc<Printer>,
        stage: watch::Receiver<Stage>,
    ) -> (Self, JoinHandle<()>) {
        let (requests, received) = mpsc::unbounded_channel();
        let keeper = Keeper {
            config,
            load_timeout,
            printer,
            stem: None,
            forks: 0,
            loading: Loading::default(),
            spare: None,
            leavings: Vec::new(),
        };
        (Self { requests }, tokio::spawn(keeper.run(received, stage)))
    }

    /// Asks for a worker; it comes on the returned channel.
    pub(super) fn fork(&self) -> Fork {
        let (reply, worker) = oneshot::channel();
        // A keeper that is gone drops the reply, which says so.
        let _ = self.requests.send(Request::Fork(reply));
        worker
    }

    /// Takes leave of a process that has ended; how it did.
    pub(super) fn reap(&self, pid: Pid) -> oneshot::Receiver<Ending> {
        let (reply, ending) = oneshot::channel();
        let _ = self.requests.send(Request::Reap(pid, reply));
        ending
    }
}

struct Keeper {
    config: Arc<ProcessConfig>,
    load_timeout: Duration,
    printer: Arc<Printer>,
    stem: Option<Stem>,
    /// Workers forked so far.
    forks: usize,
    /// Whether there is to be a loader (Z-3).
    loading: Loading,
    spare: Option<Forked>,
    /// Lost stems that are waited for and whose leavings are killed.
    leavings: Vec<JoinHandle<()>>,
}

impl Keeper {
    async fn run(mut self, mut requests: mpsc::UnboundedReceiver<Request>, mut stage: watch::Receiver<Stage>) {
        // Before the first request: by then the functions may be loaded. A failure shows again, and is told, at the first fork.
        tokio::select! {
            _ = stage.wait_for(|stage| *stage > Stage::Open) => {}
            () = async {
                if self.prepared().await.is_err() {
                    self.lose_stem();
                }
            } => {}
        }
        loop {
            let request = tokio::select! {
                _ = stage.wait_for(|stage| *stage == Stage::Ended) => break,
                request = requests.recv() => request,
                () = gone(&self.stem) => {
                    self.lose_stem();
                    continue;
                }
            };
            match request {
                None => break,
                Some(Request::Fork(reply)) => tokio::select! {
                    biased;
                    _ = stage.wait_for(|stage| *stage > Stage::Open) => {}
                    child = self.fork() => {
                        // If whoever asked has gone, the child ends as its socket does.
                        let _ = reply.send(child);
                    }
                },
                Some(Request::Reap(pid, reply)) => tokio::select! {
                    biased;
                    _ = stage.wait_for(|stage| *stage == Stage::Ended) => break,
                    ending = self.answered(async |keeper| Ok(keeper.reap(pid).await)) => {
                        let _ = reply.send(ending.unwrap_or(Ending::Unknown));
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
        let loads_itself = self.stem.as_ref().is_some_and(|stem| matches!(stem.loader, Loader::Absent));
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
            result = self.answered(async |keeper| keeper.ask_for_worker().await).await;
            match &result {
                Ok(_) => break,
                // What fork() itself said: the zygote is well.
                Err(error)
                    if error.raw_os_error().is_some_and(|errno| errno != rustix::io::Errno::PIPE.raw_os_error()) =>
                {
                    break;
                }
                // The zygote is lost or out of step (Z-4).
                Err(_) => self.lose_stem(),
            }
        }
        result
    }

    /// What the zygote answers; an error when it doesn't, in time or ever (Z-6).
    async fn answered<T>(&mut self, ask: impl AsyncFnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        let asked = self.stem.iter().flat_map(Stem::pids).collect();
        tokio::select! {
            answer = timeout(ANSWER, ask(self)) => answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
            () = stay_stopped(asked) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    async fn ask_for_worker(&mut self) -> io::Result<Forked> {
        let load_late = self.loading.is_late();
        let Some(stem) = &mut self.stem else { return Err(io::ErrorKind::NotConnected.into()) };
        let (socket, their_socket) = control::pair()?;
        let page = Page::new()?;
        let stack = Stack::new()?;
        let (output, their_output) = output::pipe()?;
        let fds = [their_socket.as_fd(), page.fd(), their_output.as_fd(), stack.fd()];
        // Kept until the child's pidfd takes its place: that must not be the one for which there is no room, when the child is there already.
        let reserve = output::duplicate(page.fd())?;
        let mut zygote_alive = stem.alive.clone();
        let pid = match &stem.loader {
            Loader::Forks(control, .., alive) => {
                zygote_alive = alive.clone();
                control.send(control::WORKER, 0, 0, &fds).await?;
                told_pid(control.reply_to(control::WORKER).await?.value)?
            }
            Loader::Becomes(control, pid) => {
                control.send(control::BECOME, 0, 0, &fds).await?;
                control.reply_to(control::BECOME).await?;
                let pid = *pid;
                stem.loader = Loader::Absent;
                pid
            }
            Loader::None | Loader::Absent => {
                let flags = if load_late { 0 } else { control::LOAD_FIRST };
                stem.control.send(control::WORKER, flags, 0, &fds).await?;
                told_pid(stem.control.reply_to(control::WORKER).await?.value)?
            }
        };
        drop(reserve);
        let child = Child { pid, pidfd: Pidfd::open(pid)?, page, stack, zygote_alive };
        Ok(Forked { child, socket, output })
    }

    async fn reap(&mut self, pid: Pid) -> Ending {
        let Some(stem) = &self.stem else { return Ending::Unknown };
        if let Loader::Forks(control, ..) = &stem.loader
            && let Ok(ending @ (Ending::Exited(_) | Ending::Killed(_))) = control.reap(pid).await
        {
            return ending;
        }
        // A worker that the stem forked, or of a loader that has ended: the stem inherited it.
        stem.control.reap(pid).await.unwrap_or(Ending::Unknown)
    }

    /// Makes sure of a stem and of what forks workers.
    async fn prepared(&mut self) -> io::Result<()> {
        if self.stem.as_ref().is_some_and(|stem| !stem.alive.load(Ordering::Acquire)) {
            self.lose_stem();
        }
        let stem = match &mut self.stem {
            Some(stem) => stem,
            None => {
                let stem = start_stem(&self.config, &self.printer).await?;
                self.stem.insert(stem)
            }
        };
        if let Loader::Forks(_, pid, pidfd, alive) = &stem.loader {
            let pid = *pid;
            let lost = timeout(Duration::ZERO, pidfd.ended()).await.is_ok();
            if lost {
                // In this order: its workers are the stem's to reap, unasked, once it is gone (stem.py S-3).
                alive.store(false, Ordering::Release);
                stem.loader = Loader::None;
                stem.reap(pid).await?;
            }
        }
        if matches!(stem.loader, Loader::Absent) && self.loading.tries_again(Instant::now()) {
            stem.loader = Loader::None;
        }
        while matches!(stem.loader, Loader::None) {
            if self.loading.is_late() {
                stem.loader = Loader::Absent;
                break;
            }
            match start_loader(stem, self.load_timeout).await? {
                Load::Done(loader) => {
                    stem.loader = loader;
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
        if let Some(mut stem) = self.stem.take() {
            stem.lost();
            // It has ended, or is out of step: either way it has to go, and be waited for.
            let _ = stem.pidfd.signal(Signal::KILL);
            self.leavings.retain(|left| !left.is_finished());
            self.leavings.push(tokio::task::spawn_blocking(move || {
                let _ = stem.process.wait(); // it can't be said to anyone that it was not ours to wait for
                stem.token.sweep(); // Z-5
            }));
        }
    }

    /// Ends the stem, which ends all others.
    async fn end(&mut self) {
        self.spare = None;
        if let Some(mut stem) = self.stem.take() {
            let _ = stem.pidfd.signal(Signal::CONT); // it may have been stopped
            let asked = stem.control.send(control::END, 0, 0, &[]).await;
            if asked.is_err() || timeout(END, stem.pidfd.ended()).await.is_err() {
                let _ = stem.pidfd.signal(Signal::KILL);
                stem.pidfd.ended().await;
            }
            stem.lost();
            // It has ended: this does not wait.
            if !stem.process.wait().is_ok_and(|status| status.success()) {
                self.leavings.push(tokio::task::spawn_blocking(move || stem.token.sweep())); // Z-5
            }
            let _ = stem.reader.await;
        }
        for left in self.leavings.drain(..) {
            let _ = left.await;
        }
    }
}

/// Waits for the end of the stem; for ever without one.
async fn gone(stem: &Option<Stem>) {
    match stem {
        Some(stem) => stem.pidfd.ended().await,
        None => std::future::pending().await,
    }
}
