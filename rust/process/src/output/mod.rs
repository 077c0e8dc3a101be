//! Output of workers: whole lines to the trainer's stderr, each with its function and process.
//!
//! - A worker never waits for the terminal: output is read at once, and dropped when too much
//!   waits. No more than `LINES_A_SECOND` lines are shown a second; the number of dropped ones is
//!   reported.
//! - A crash report of the interpreter is kept for the outcome. The output of a dead worker is read
//!   to its end, unless a descendant holds the pipe open.
//! - Lines are text: a carriage return ends a line, other control characters are escaped.
//! - A mark between the outputs of two functions names the function of the next lines.

mod crash_report;
mod lines;
mod printer;

use std::io::Write;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::process::Pid;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Notify;
use tokio::task::coop::consume_budget;

use crash_report::{BEGINNING, CrashReport};
use lines::{Lines, Piece};
pub use printer::Printer;

/// Most bytes of a crashed interpreter's stack.
const LONGEST_STACK: usize = 16 << 10;
/// Reads of 16 KB after the process has ended: more than a pipe holds.
const LAST_READS: u32 = 16;

/// Destination of lines; the lane's is standard error.
pub type Sink = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Writes to the trainer's standard error.
#[must_use]
pub fn standard_error() -> Sink {
    Arc::new(|lines| {
        // A closed standard error can't be reported anywhere.
        let _ = std::io::stderr().lock().write_all(lines);
    })
}
/// The names of the functions, and the one that a worker runs now.
pub(super) struct Source {
    names: Arc<[Arc<str>]>,
    /// Index into `names`. Written by the reader at each mark.
    current: AtomicUsize,
    pub pid: Pid,
    /// Bytes read from its pipe. Held by the reader while it reads.
    read: Mutex<u64>,
    /// The stack of an interpreter that crashed. Written by the reader, taken by the supervisor
    /// when the process has ended.
    crash: Mutex<String>,
}

impl Source {
    /// The source of a worker that runs no function yet.
    pub(super) fn new(names: Arc<[Arc<str>]>, pid: Pid) -> Arc<Self> {
        Arc::new(Self {
            names,
            current: AtomicUsize::new(usize::MAX),
            pid,
            read: Mutex::default(),
            crash: Mutex::default(),
        })
    }

    /// The source of a process that runs no functions.
    pub(super) fn of(name: &str, pid: Pid) -> Arc<Self> {
        let source = Self::new([Arc::from(name)].into(), pid);
        source.current.store(0, Ordering::Relaxed);
        source
    }

    /// Returns the stack that the crashed process reported.
    pub(super) fn crash(&self) -> Option<String> {
        let text = std::mem::take(&mut *self.crash.lock());
        (!text.is_empty()).then_some(text)
    }

    /// Bytes that the process has printed until now.
    pub(super) fn printed(&self, pipe: &Receiver) -> u64 {
        let read = self.read.lock();
        *read + rustix::io::ioctl_fionread(pipe).unwrap_or(0) // the pipe has this many unread bytes
    }

    /// Reads some of what the process printed, and counts it.
    fn take(&self, read: impl FnOnce() -> std::io::Result<usize>) -> std::io::Result<usize> {
        let mut total = self.read.lock();
        let got = read()?;
        *total += got as u64;
        Ok(got)
    }

    fn watch_for_crash(&self, line: &[u8]) {
        let mut crash = self.crash.lock();
        if line.starts_with(BEGINNING) {
            crash.clear();
        } else if crash.is_empty() {
            return;
        }
        if crash.len() + line.len() < LONGEST_STACK {
            crash.push_str(&String::from_utf8_lossy(line));
            crash.push('\n');
        }
    }

    fn label(&self) -> String {
        let name = self.names.get(self.current.load(Ordering::Relaxed)).map_or("worker", |name| name);
        format!("{name} {}", self.pid.as_raw_nonzero())
    }
}

/// Makes a pipe for a process's output: our end, and the process's.
pub(super) fn pipe() -> std::io::Result<(Receiver, OwnedFd)> {
    let (ours, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((Receiver::from_owned_fd(ours)?, theirs))
}

/// Another descriptor of the same pipe.
pub(super) fn duplicate(fd: BorrowedFd<'_>) -> std::io::Result<OwnedFd> {
    fd.try_clone_to_owned()
}

/// Reads a process's output until its end, or until `ended` resolves at the end of the process.
pub(super) async fn read(pipe: Arc<Receiver>, source: Arc<Source>, printer: Arc<Printer>, ended: Arc<Notify>) {
    let mut lines = Lines::default();
    let mut report = CrashReport::default();
    let mut bytes = vec![0; 16 << 10];
    let mut last = false;
    let mut left = LAST_READS;
    let show = |line: &[u8]| printer.line(&source.label(), line);
    let mut give = |piece: Piece<'_>| match piece {
        Piece::Line(line) => {
            source.watch_for_crash(line);
            report.feed(line, show);
        }
        Piece::Mark(function) => {
            report.end(show); // it belongs to the function before
            source.current.store(function, Ordering::Relaxed);
        }
    };
    loop {
        if !last {
            tokio::select! {
                ready = pipe.readable() => if ready.is_err() { break },
                () = ended.notified() => last = true,
            }
        }
        let read = if last {
            // Reads all bytes that are there, even before the runtime has noticed them.
            left -= 1;
            source.take(|| rustix::io::read(&*pipe, &mut bytes).map_err(Into::into))
        } else {
            source.take(|| pipe.try_read(&mut bytes))
        };
        match read {
            Ok(0) => break,
            Ok(got) => lines.feed(&bytes[..got], &mut give),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && !last => {}
            Err(_) => break,
        }
        if left == 0 {
            break;
        }
        consume_budget().await; // a flood of output yields the thread now and then
    }
    lines.flush(&mut give);
    report.end(show);
}
