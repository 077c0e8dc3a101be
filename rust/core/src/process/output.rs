//! What workers print: whole lines to the trainer's standard error, each with the function and the process it came from.
//!
//! - O-1  A worker never waits for the trainer's terminal: what it prints is read at once, and dropped when too much waits to be written.
//! - O-2  At most `LINES_A_SECOND` lines are written each second; what is dropped is counted and told once a second.
//! - O-3  What a dying interpreter says of its stack is kept for the outcome of the call.
//! - O-4  The last words of a worker that ended are read; a descendant that keeps its pipe open delays nothing.
//! - O-5  What a process has printed can be told to the byte at any moment: what was read, and what its pipe still holds.

use std::io::Write;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Pid;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

const LINES_A_SECOND: u32 = 1000;
const LONGEST_LINE: usize = 8192;
/// Most bytes of a crashed interpreter's stack.
const LONGEST_STACK: usize = 16 << 10;
/// Reads of 16 KB after the process has ended: more than a pipe holds.
const LAST_READS: u32 = 16;
/// Lines that may wait for the terminal.
const WAITING: usize = 4096;

/// Where lines go; the lane's is standard error.
pub type Sink = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Writes to the trainer's standard error.
#[must_use]
pub fn standard_error() -> Sink {
    Arc::new(|lines| {
        // Nobody is there to be told that standard error is closed.
        let _ = std::io::stderr().lock().write_all(lines);
    })
}

/// Takes the lines of all workers of a lane.
pub(super) struct Printer {
    lines: mpsc::Sender<Item>,
    second: Mutex<Second>,
    /// All lines dropped. Written by every worker's reader.
    dropped: AtomicU64,
}

enum Item {
    Line(String),
    /// Answered when all lines before it are written.
    Flush(oneshot::Sender<()>),
}

struct Second {
    start: Option<Instant>,
    lines: u32,
    dropped: u64,
}

impl Printer {
    /// Starts the task that writes; it ends with the printer.
    pub(super) fn start(sink: Sink) -> Arc<Self> {
        let (lines, mut waiting) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while waiting.recv_many(&mut batch, WAITING).await > 0 {
                let (mut text, mut flushed) = (String::new(), Vec::new());
                for item in batch.drain(..) {
                    match item {
                        Item::Line(line) => text.push_str(&line),
                        Item::Flush(answer) => flushed.push(answer),
                    }
                }
                let sink = sink.clone();
                // A terminal may block: not on a thread that others need. A sink that panicked has nothing more to say.
                let _ = tokio::task::spawn_blocking(move || sink(text.as_bytes())).await;
                for answer in flushed {
                    let _ = answer.send(()); // whoever waited may have given up
                }
            }
        });
        Arc::new(Self {
            lines,
            second: Mutex::new(Second { start: None, lines: 0, dropped: 0 }),
            dropped: AtomicU64::new(0),
        })
    }

    /// Lines that were dropped since the start.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn send(&self, line: String) -> bool {
        self.lines.try_send(Item::Line(line)).is_ok()
    }

    /// Waits until what was printed so far is written.
    pub(super) async fn flush(&self) {
        let (answer, flushed) = oneshot::channel();
        if self.lines.send(Item::Flush(answer)).await.is_ok() {
            // An error: the task is gone, and so is what waited.
            let _ = flushed.await;
        }
    }

    fn line(&self, source: &str, line: &[u8]) {
        let told = {
            let mut second = self.second.lock();
            let now = Instant::now();
            let told = if second.start.is_none_or(|start| now - start >= Duration::from_secs(1)) {
                second.start = Some(now);
                second.lines = 0;
                std::mem::take(&mut second.dropped)
            } else {
                0
            };
            second.lines += 1;
            if second.lines > LINES_A_SECOND {
                second.dropped += 1;
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            told
        };
        if told > 0 {
            // As droppable as any line.
            self.send(format!("[guerdon] {told} lines of output were dropped (1000 a second are shown)\n"));
        }
        let text = String::from_utf8_lossy(line);
        if !self.send(format!("[guerdon {source}] {text}\n")) {
            self.second.lock().dropped += 1;
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The names of the functions, and which of them a worker runs now.
pub(super) struct Source {
    names: Arc<[Arc<str>]>,
    /// Index into `names`. Written by the worker's supervisor, read by its reader.
    pub current: AtomicUsize,
    pub pid: Pid,
    /// Bytes read from its pipe. Held by the reader while it reads (O-5).
    read: Mutex<u64>,
    /// The stack of an interpreter that crashed (O-3). Written by the reader, taken by the supervisor when the process has ended.
    crash: Mutex<String>,
}

impl Source {
    /// A worker, running none of these functions yet.
    pub(super) fn new(names: Arc<[Arc<str>]>, pid: Pid) -> Arc<Self> {
        Arc::new(Self {
            names,
            current: AtomicUsize::new(usize::MAX),
            pid,
            read: Mutex::default(),
            crash: Mutex::default(),
        })
    }

    /// A process that runs no function.
    pub(super) fn of(name: &str, pid: Pid) -> Arc<Self> {
        let source = Self::new([Arc::from(name)].into(), pid);
        source.current.store(0, Ordering::Relaxed);
        source
    }

    /// What the process said of its stack as it crashed.
    pub(super) fn crash(&self) -> Option<String> {
        let text = std::mem::take(&mut *self.crash.lock());
        (!text.is_empty()).then_some(text)
    }

    /// Bytes that the process has printed until now (O-5).
    pub(super) fn printed(&self, pipe: &Receiver) -> u64 {
        let read = self.read.lock();
        *read + rustix::io::ioctl_fionread(pipe).unwrap_or(0) // a pipe can say
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
        if line.starts_with(b"Fatal Python error: ") {
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

/// A pipe for a process's output: ours, and the process's.
pub(super) fn pipe() -> std::io::Result<(Receiver, OwnedFd)> {
    let (ours, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((Receiver::from_owned_fd(ours)?, theirs))
}

/// Another descriptor of the same pipe.
pub(super) fn duplicate(fd: BorrowedFd<'_>) -> std::io::Result<OwnedFd> {
    fd.try_clone_to_owned()
}

/// Reads a process's output until its end, or until `ended` says that the process has ended (O-4).
pub(super) async fn read(pipe: Arc<Receiver>, source: Arc<Source>, printer: Arc<Printer>, ended: Arc<Notify>) {
    let mut lines = Lines { held: Vec::new(), skipping: false };
    let mut bytes = vec![0; 16 << 10];
    let mut last = false;
    let mut left = LAST_READS;
    let give = |line: &[u8]| {
        source.watch_for_crash(line);
        printer.line(&source.label(), line);
    };
    loop {
        if !last {
            tokio::select! {
                ready = pipe.readable() => if ready.is_err() { break },
                () = ended.notified() => last = true,
            }
        }
        let read = if last {
            // Whatever is there: the runtime may not have been told of it yet.
            left -= 1;
            source.take(|| rustix::io::read(&*pipe, &mut bytes).map_err(Into::into))
        } else {
            source.take(|| pipe.try_read(&mut bytes))
        };
        match read {
            Ok(0) => break,
            Ok(got) => lines.feed(&bytes[..got], give),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && !last => {}
            Err(_) => break,
        }
        if left == 0 {
            break;
        }
    }
    lines.flush(give);
}

/// Cuts a stream into lines.
struct Lines {
    held: Vec<u8>,
    /// Inside a line whose beginning was given already, as too long.
    skipping: bool,
}

impl Lines {
    fn feed(&mut self, mut bytes: &[u8], mut give: impl FnMut(&[u8])) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.held.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            if !std::mem::take(&mut self.skipping) {
                self.held.truncate(LONGEST_LINE);
                give(&self.held);
            }
            self.held.clear();
        }
        if !self.skipping {
            self.held.extend_from_slice(bytes);
            if self.held.len() > LONGEST_LINE {
                self.held.truncate(LONGEST_LINE);
                give(&self.held);
                self.held.clear();
                self.skipping = true;
            }
        }
    }

    fn flush(&mut self, give: impl FnOnce(&[u8])) {
        if !self.held.is_empty() && !self.skipping {
            give(&self.held);
        }
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_bounded() {
        let mut lines = Lines { held: Vec::new(), skipping: false };
        let mut seen: Vec<String> = Vec::new();
        let mut feed = |bytes: &[u8], lines: &mut Lines| {
            lines.feed(bytes, |line| seen.push(String::from_utf8_lossy(line).into_owned()));
        };
        feed(b"a\nb", &mut lines);
        feed(b"c\n\n", &mut lines);
        feed(&[b'x'; LONGEST_LINE + 1], &mut lines);
        feed(b"rest of it\nlast", &mut lines);
        lines.flush(|line| seen.push(String::from_utf8_lossy(line).into_owned()));
        assert_eq!(seen, ["a", "bc", "", &"x".repeat(LONGEST_LINE), "last"]);
    }

    #[tokio::test(start_paused = true)]
    async fn o2_too_many_lines_are_dropped_counted_and_told() {
        let (sent, mut seen) = mpsc::unbounded_channel();
        let printer = Printer::start(Arc::new(move |lines: &[u8]| {
            sent.send(String::from_utf8_lossy(lines).into_owned()).ok();
        }));
        for number in 0..1500 {
            printer.line("f 1", number.to_string().as_bytes());
        }
        assert_eq!(printer.dropped(), 500);
        tokio::time::sleep(Duration::from_secs(2)).await;
        printer.line("f 1", b"after");
        drop(printer);
        let mut all = String::new();
        while let Some(lines) = seen.recv().await {
            all.push_str(&lines);
        }
        assert!(all.starts_with("[guerdon f 1] 0\n"));
        assert!(
            all.ends_with(
                "[guerdon] 500 lines of output were dropped (1000 a second are shown)\n[guerdon f 1] after\n"
            )
        );
    }
}
