//! Starts the zygote's process and its loader, and holds their resources.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use guerdon_core::pidfd::{Pidfd, open_pidfd};
use rustix::process::{Pid, Signal};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::child::{DYING, is_stopped, pid_from_message};
use crate::child_guard::ChildGuard;
use crate::config::ProcessConfig;
use crate::exit_status::ExitStatus;
use crate::orphan_marker::OrphanMarker;
use crate::output::{self, Printer, Source};
use crate::parent::Parent;
use crate::zygote_requests::{self, ZygoteSocket};

/// Version of the messages and pages that this process shares with the zygote and its workers, from
/// the file beside their program. It is raised with every change of these.
const PROTOCOL: &str = include_str!("../../../../python/guerdon/_worker/protocol.txt");
/// Time in which the zygote must answer simple requests.
pub(super) const ANSWER: Duration = Duration::from_secs(20);
/// Interval of checks whether a process that owes an answer is stopped.
const STOPPED: Duration = Duration::from_millis(250);

pub(super) struct ZygoteProcess {
    pub(super) process: ChildGuard,
    pub(super) control: ZygoteSocket,
    /// The zygote as a parent, for the holders of its workers.
    pub(super) parent: Arc<Parent>,
    pub(super) token: OrphanMarker,
    pub(super) loader: Loader,
    /// Loaders that the first one forked; empty without it.
    pub(super) clones: Vec<LoaderClone>,
    pub(super) output_ended: Arc<Notify>,
    /// Reads the output of the zygote and the loader.
    pub(super) reader: JoinHandle<()>,
}

pub(super) enum Loader {
    /// Not started yet, or lost: the next fork starts one.
    None,
    /// Forks workers.
    Forks(Arc<ZygoteSocket>, Pid, Arc<Parent>),
    /// Loaded, with several threads; it becomes the next worker.
    Becomes(ZygoteSocket, Pid),
    /// Workers load by themselves.
    Absent,
    /// Workers load by themselves while another loader is tried.
    Tried(JoinHandle<io::Result<Load>>),
}

/// A fork of the loader that also forks workers. It ends with the loader.
#[derive(Clone)]
pub(super) struct LoaderClone {
    pub(super) control: Arc<ZygoteSocket>,
    pub(super) pid: Pid,
    /// The loader as a parent, for the holders of its workers.
    pub(super) parent: Arc<Parent>,
}

impl ZygoteProcess {
    /// All loaders that fork workers.
    pub(super) fn loaders(&self) -> impl Iterator<Item = LoaderClone> {
        let first = match &self.loader {
            Loader::Forks(control, pid, parent) => {
                Some(LoaderClone { control: control.clone(), pid: *pid, parent: parent.clone() })
            }
            Loader::None | Loader::Becomes(..) | Loader::Absent | Loader::Tried(_) => None,
        };
        first.into_iter().chain(self.clones.iter().cloned())
    }

    /// Loaders that fork workers for any request.
    pub(super) fn shared_loaders(&self) -> impl Iterator<Item = LoaderClone> {
        self.loaders().filter(|loader| !loader.parent.is_of_one())
    }

    /// Kills a loader that is unusable, and waits for its end, which the next check finds.
    pub(super) async fn kill_loader(&self, pid: Pid) {
        for LoaderClone { parent, .. } in self.loaders().filter(|loader| loader.pid == pid) {
            let _ = parent.pidfd.signal(Signal::KILL);
            let _ = timeout(DYING, parent.pidfd.ended()).await;
        }
    }

    /// Kills all loaders except the first and those with a single worker.
    pub(super) async fn kill_clones(&self) {
        for clone in self.clones.iter().filter(|clone| !clone.parent.is_of_one()) {
            self.kill_loader(clone.pid).await;
        }
    }

    /// Reaps loaders that have ended. The order matters: the zygote reaps the workers of a loader,
    /// without a request, once the loader is gone.
    pub(super) async fn forget_ended_loaders(&mut self) -> io::Result<()> {
        let lost = match &self.loader {
            Loader::Forks(_, pid, parent) if parent.pidfd.has_ended() => {
                parent.lost();
                Some(*pid)
            }
            _ => None,
        };
        let mut ended = Vec::new();
        for index in (0..self.clones.len()).rev() {
            if lost.is_some() {
                // It ends with the first.
                let _ = timeout(DYING, self.clones[index].parent.pidfd.ended()).await;
            }
            if lost.is_some() || self.clones[index].parent.pidfd.has_ended() {
                let clone = self.clones.swap_remove(index);
                clone.parent.lost();
                ended.push(clone.pid);
            }
        }
        for pid in &ended {
            // The zygote drops it; it is the zygote's child only if the first loader has ended.
            self.reap(*pid).await?;
            if let (None, Loader::Forks(first, ..)) = (lost, &self.loader) {
                timeout(ANSWER, first.reap(*pid)).await.map_err(io::Error::from)??;
            }
        }
        if let Some(pid) = lost {
            self.loader = Loader::None;
            self.reap(pid).await?;
        }
        Ok(())
    }

    /// Reaps a child that has ended.
    pub(super) async fn reap(&self, pid: Pid) -> io::Result<ExitStatus> {
        timeout(ANSWER, self.control.reap(pid)).await.map_err(io::Error::from)?
    }

    /// The pids of the zygote and of the loader that forks.
    pub(super) fn pids(&self) -> Vec<Pid> {
        let loader = if let Loader::Forks(_, pid, ..) = &self.loader { Some(*pid) } else { None };
        Pid::from_raw(self.process.id().cast_signed()).into_iter().chain(loader).collect()
    }

    /// Records that its children may be reaped by any process from now on.
    pub(super) fn lost(&self) {
        self.parent.lost();
        self.loaders().for_each(|loader| loader.parent.lost());
        self.output_ended.notify_one();
    }
}

/// Returns when one of these processes is stopped and stays so after SIGCONT.
pub(super) async fn stay_stopped(pids: Vec<Pid>) {
    let mut continued = false;
    loop {
        tokio::time::sleep(STOPPED).await;
        let stopped: Vec<&Pid> = pids.iter().filter(|pid| is_stopped(**pid)).collect();
        if continued && !stopped.is_empty() {
            return;
        }
        continued = !stopped.is_empty();
        for pid in stopped {
            // it is still ours, because it is stopped and not reaped
            let _ = rustix::process::kill_process(*pid, Signal::CONT);
        }
    }
}

/// Refuses a worker program with another version of the messages, which comes from a package that
/// was replaced while this process runs.
fn check_protocol(config: &ProcessConfig) -> io::Result<()> {
    let found = fs::read_to_string(config.worker_dir.join("protocol.txt")).unwrap_or_else(|_| "unknown".to_owned());
    if found == PROTOCOL {
        return Ok(());
    }
    let (found, own, folder) = (found.trim(), PROTOCOL.trim(), config.worker_dir.display());
    Err(io::Error::other(format!(
        "the worker program in {folder} speaks version {found} of the workers' protocol, and this process version {own}: \
         guerdon was installed anew while it runs. Start it again"
    )))
}

pub(super) async fn start_zygote(config: &ProcessConfig, printer: &Arc<Printer>) -> io::Result<ZygoteProcess> {
    check_protocol(config)?;
    let (control, theirs) = ZygoteSocket::new()?;
    // Opened before the zygote starts, which needs it to watch this process.
    let this_process = open_pidfd(rustix::process::getpid())?;
    let serialized_functions = rustix::fs::memfd_create("guerdon-functions", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut written = 0;
    while written < config.serialized_functions.len() {
        written += rustix::io::pwrite(&serialized_functions, &config.serialized_functions[written..], written as u64)?;
    }
    control.send(zygote_requests::FUNCTIONS, 0, 0, &[serialized_functions.as_fd(), this_process.as_fd()]).await?;
    let (output, their_output) = output::pipe()?;
    let errors = output::duplicate(their_output.as_fd())?;
    let mut command = Command::new(&config.python);
    command
        .arg(config.worker_dir.join("_zygote.py"))
        .arg(std::process::id().to_string())
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::from(their_output))
        .stderr(Stdio::from(errors))
        .process_group(0);
    if let Some(environment) = &config.environment {
        command.env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
    }
    let token = OrphanMarker::new();
    let (name, value) = token.variable();
    command.env(name, value);
    let process = ChildGuard::from(command.spawn().map_err(|error| {
        io::Error::new(error.kind(), format!("could not start {}: {error}", config.python.display()))
    })?);
    drop(command); // drops our copies of the descriptors
    let pid = pid_from_message(i64::from(process.id()))?;
    let pidfd = Pidfd::open(pid)?;
    let output_ended = Arc::new(Notify::new());
    let source = Source::of("zygote", pid);
    let reader = tokio::spawn(output::read(Arc::new(output), source, printer.clone(), output_ended.clone()));
    Ok(ZygoteProcess {
        process,
        control,
        parent: Parent::top(pidfd),
        token,
        loader: Loader::None,
        clones: Vec::new(),
        output_ended,
        reader,
    })
}

/// Result of loading.
pub(super) enum Load {
    Done(Loader),
    /// The loader died, or hung and was killed; the zygote must reap it.
    Failed {
        pid: Pid,
        hung: bool,
    },
}

/// A loader that loads the functions.
pub(super) struct NewLoader {
    control: ZygoteSocket,
    pid: Pid,
    pidfd: Pidfd,
    zygote: Arc<Parent>,
}

impl NewLoader {
    /// Forks a loader.
    pub(super) async fn start(zygote: &ZygoteProcess) -> io::Result<Self> {
        let (control, theirs) = ZygoteSocket::new()?;
        let forked = async {
            zygote.control.send(zygote_requests::LOADER, 0, 0, &[theirs.as_fd()]).await?;
            zygote.control.reply_to(zygote_requests::LOADER).await
        };
        let forked = tokio::select! {
            forked = timeout(ANSWER, forked) => forked.map_err(io::Error::from)??,
            () = stay_stopped(zygote.pids()) => return Err(io::ErrorKind::TimedOut.into()),
        };
        let pid = pid_from_message(forked.value)?;
        Ok(Self { control, pid, pidfd: Pidfd::open(pid)?, zygote: zygote.parent.clone() })
    }

    /// Waits until it has loaded the functions; meanwhile the zygote can serve other requests.
    pub(super) async fn loaded(self, load_timeout: Duration) -> io::Result<Load> {
        let Self { control, pid, pidfd, zygote } = self;
        let loaded = tokio::select! {
            loaded = timeout(load_timeout, control.reply_to(zygote_requests::LOADED)) => loaded,
            () = zygote.pidfd.ended() => return Err(io::ErrorKind::BrokenPipe.into()),
            () = stay_stopped(vec![pid]) => return Err(io::ErrorKind::TimedOut.into()),
            () = pidfd.ended() => Ok(Err(io::ErrorKind::BrokenPipe.into())),
        };
        let hung = match loaded {
            Ok(Ok(reply)) if reply.extra == 1 => {
                let parent = Parent::new(pidfd, &zygote);
                return Ok(Load::Done(Loader::Forks(Arc::new(control), pid, parent)));
            }
            Ok(Ok(_)) => return Ok(Load::Done(Loader::Becomes(control, pid))),
            Ok(Err(_)) => false,
            Err(_) => true,
        };
        // Harmless if it has ended: its pid is taken until it is reaped.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        let _ = timeout(DYING, pidfd.ended()).await;
        Ok(Load::Failed { pid, hung })
    }
}
