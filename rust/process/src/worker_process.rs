//! A worker's process, with its output and its end. After any end of the process its group is
//! killed, its output read and the process reaped. It is signalled only before that, because its
//! pid may be reused afterwards.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Pid;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::child::Child;
use crate::exit_status::ExitStatus;
use crate::lane_state::{LaneState, LiveProcess};
use crate::output::{self, Source};
use crate::worker_socket::WorkerSocket;
use crate::zygote::Zygote;

/// Time to wait for the zygote's report on a worker's end: longer than a round of forks.
const ASK: Duration = Duration::from_secs(5);
/// The same if the kernel gave the exit status: a loader that imports modules may delay
/// the zygote's report.
const ASK_KNOWN: Duration = Duration::from_millis(200);

/// A worker's process.
pub(super) struct WorkerProcess {
    /// The zygote whose descendant it is.
    zygote: Zygote,
    /// Shared with readers of its stack.
    pub child: Arc<Child>,
    source: Arc<Source>,
    output: Arc<Receiver>,
    output_ended: Arc<Notify>,
    /// Reads its output; `None` after the output was read.
    reader: Option<JoinHandle<()>>,
    live: LiveProcess,
}

impl WorkerProcess {
    pub(super) fn new(shared: &Arc<LaneState>, zygote: Zygote, child: Child, output: Receiver) -> Self {
        let source = Source::new(shared.names.clone(), child.pid);
        let output_ended = Arc::new(Notify::new());
        let output = Arc::new(output);
        let reader = output::read(output.clone(), source.clone(), shared.printer.clone(), output_ended.clone());
        let live = shared.account(child.pid);
        let child = Arc::new(child);
        Self { zygote, child, source, output, output_ended, reader: Some(tokio::spawn(reader)), live }
    }

    /// Number of bytes that it has printed so far.
    pub(super) fn printed(&self) -> u64 {
        self.source.printed(&self.output)
    }

    /// Reaps a process that has ended. Returns its exit status, and the stack of its interpreter if
    /// there was a crash report.
    pub(super) async fn reap(&mut self) -> (ExitStatus, Option<String>) {
        self.child.kill(); // kills the rest of its group
        let shown = self.child.exit_status();
        let reaped = self.zygote.reap(&self.child);
        let ending = timeout(if shown.is_some() { ASK_KNOWN } else { ASK }, reaped).await;
        self.output_ended.notify_one();
        if let Some(reader) = self.reader.take() {
            let _ = reader.await; // a reader that panicked reads nothing more
        }
        let reported = ending.ok().and_then(Result::ok).filter(|status| *status != ExitStatus::Unknown);
        (reported.or(shown).unwrap_or(ExitStatus::Unknown), self.source.crash())
    }

    /// Gives the process some time to end by itself, on another task, and kills it after that. Its
    /// socket stays open until then: it may still send something before it reads the order to end.
    pub(super) fn shut_down(mut self, socket: WorkerSocket, patience: Duration) {
        tokio::spawn(async move {
            let _ = timeout(patience, self.child.pidfd.ended()).await;
            drop(socket);
            self.child.kill();
            self.child.pidfd.ended().await;
            self.reap().await;
            self.close();
        });
    }

    /// Closes the descriptors of a process that was reaped.
    pub(super) fn close(self) {
        let Self { child, output, live, .. } = self;
        // the descriptors are closed first: a waiter for `live` finds none of them open
        drop((child, output));
        drop(live);
    }

    /// Returns the memory of the process; `None` after its end.
    pub(super) fn resident_bytes(&self) -> Option<u64> {
        let pid: Pid = self.child.pid;
        let text = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kilobytes * 1024)
    }
}
