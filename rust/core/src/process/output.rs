//! What workers print: whole lines to the trainer's standard error, each with the function and the process it came from.
//!
//! - O-1  A worker never waits for the trainer's terminal: what it prints is read at once, and dropped when too much waits to be written.
//! - O-2  At most `LINES_A_SECOND` lines are written each second; what is dropped is counted and told once a second.
//! - O-3  What a dying interpreter says of its stack is kept for the outcome of the call.
//! - O-4  The last words of a worker that ended are read; a descendant that keeps its pipe open delays nothing.
//! - O-5  What a process has printed can be told to the byte at any moment: what was read, and what its pipe still holds.
//! - O-6  A line is named after the function that printed it: the worker puts a mark between what two functions print.
//! - O-7  A line is shown as text: a carriage return ends it as a newline does, other control characters are escaped. So nothing that is printed
//!   can reach the terminal as a command, or pass for another function's line, unless a function prints the mark of another on purpose.

use std::fmt::Write as _;
use std::io::Write;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Pid;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::coop::consume_budget;
use tokio::time::Instant;

const LINES_A_SECOND: u32 = 1000;
const SECOND: Duration = Duration::from_secs(1);
const LONGEST_LINE: usize = 8192;
/// More than a mark has.
const LONGEST_MARK: usize = 32;
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

/// A line as text for a terminal (O-7).
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() && char != '\t' {
            // Writing to a string does not fail.
            let _ = write!(shown, "\\x{:02x}", u32::from(char));
        } else {
            shown.push(char);
        }
    }
    shown
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
        let dropped = std::mem::take(&mut self.second.lock().dropped);
        self.tell(dropped);
        let (answer, flushed) = oneshot::channel();
        if self.lines.send(Item::Flush(answer)).await.is_ok() {
            // An error: the task is gone, and so is what waited.
            let _ = flushed.await;
        }
    }

    fn line(self: &Arc<Self>, source: &str, line: &[u8]) {
        let (told, first) = {
            let mut second = self.second.lock();
            let now = Instant::now();
            let told = if second.start.is_none_or(|start| now - start >= SECOND) {
                second.start = Some(now);
                second.lines = 0;
                std::mem::take(&mut second.dropped)
            } else {
                0
            };
            second.lines += 1;
            let dropped = second.lines > LINES_A_SECOND;
            second.dropped += u64::from(dropped);
            (told, dropped.then_some(second.dropped == 1))
        };
        self.tell(told);
        if let Some(first) = first {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            if first {
                self.tell_later();
            }
        } else if !self.send(format!("[guerdon {source}] {}\n", shown(line))) {
            self.second.lock().dropped += 1;
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Says how many lines were dropped; as droppable as any line.
    fn tell(&self, dropped: u64) {
        if dropped > 0 {
            self.send(format!("[guerdon] {dropped} lines of output were dropped (1000 a second are shown)\n"));
        }
    }

    /// Says it when the second is over, if no later line has.
    fn tell_later(self: &Arc<Self>) {
        let printer = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(SECOND).await;
            if let Some(printer) = printer.upgrade() {
                let dropped = std::mem::take(&mut printer.second.lock().dropped);
                printer.tell(dropped);
            }
        });
    }
}

/// The names of the functions, and which of them a worker runs now.
pub(super) struct Source {
    names: Arc<[Arc<str>]>,
    /// Index into `names`. Written by the reader as it meets marks (O-6).
    current: AtomicUsize,
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
    let mut lines = Lines::default();
    let mut bytes = vec![0; 16 << 10];
    let mut last = false;
    let mut left = LAST_READS;
    let give = |piece: Piece<'_>| match piece {
        Piece::Line(line) => {
            source.watch_for_crash(line);
            printer.line(&source.label(), line);
        }
        Piece::Mark(function) => source.current.store(function, Ordering::Relaxed),
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
        consume_budget().await; // a flood leaves the thread to others now and then
    }
    lines.flush(give);
}

/// What a stream holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Line(&'a [u8]),
    /// What follows is this function's.
    Mark(usize),
}

/// What a mark begins with; the function's number and a newline follow.
const MARK: &[u8] = b"\0guerdon:";

/// Cuts a stream into lines.
#[derive(Default)]
struct Lines {
    held: Vec<u8>,
    /// Inside a line whose beginning was given already, as too long.
    skipping: bool,
    /// The last line ended with a carriage return: a newline right after it is part of that.
    returned: bool,
}

impl Lines {
    fn feed(&mut self, mut bytes: &[u8], mut give: impl FnMut(Piece<'_>)) {
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.hold(&bytes[..end], &mut give);
            let returns = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.end(returns, &mut give);
        }
        self.hold(bytes, &mut give);
    }

    /// Takes a piece of a line in. What is too long is given at once, and the rest of it passed over but for a mark at its end.
    fn hold(&mut self, bytes: &[u8], give: &mut impl FnMut(Piece<'_>)) {
        if bytes.is_empty() {
            return;
        }
        self.returned = false;
        self.held.extend_from_slice(bytes);
        if self.skipping {
            let kept = self.held.len().saturating_sub(LONGEST_MARK);
            self.held.drain(..kept);
        } else if self.held.len() > LONGEST_LINE {
            give(Piece::Line(&self.held[..LONGEST_LINE]));
            self.held.drain(..LONGEST_LINE);
            self.skipping = true;
            let kept = self.held.len().saturating_sub(LONGEST_MARK);
            self.held.drain(..kept);
        }
    }

    fn end(&mut self, returns: bool, give: &mut impl FnMut(Piece<'_>)) {
        let empty = self.held.is_empty() && !self.skipping;
        let after_return = std::mem::replace(&mut self.returned, returns);
        if empty && (returns || after_return) {
            return; // progress bars begin with a return; `\r\n` ends one line
        }
        let mark = mark_at_end(&self.held);
        let text = mark.map_or(self.held.len(), |(start, _)| start);
        // A mark ends the line that it stands in, and is none itself.
        if !self.skipping && (mark.is_none() || text > 0) {
            give(Piece::Line(&self.held[..text]));
        }
        if let Some((_, function)) = mark {
            give(Piece::Mark(function));
        }
        self.skipping = false;
        self.held.clear();
    }

    fn flush(&mut self, mut give: impl FnMut(Piece<'_>)) {
        if !self.held.is_empty() {
            self.end(false, &mut give);
        }
    }
}

/// Where the mark at the end of a line begins, and the function that it names.
fn mark_at_end(line: &[u8]) -> Option<(usize, usize)> {
    let start = line.iter().rposition(|byte| *byte == 0)?;
    let digits = line[start..].strip_prefix(MARK)?;
    let function = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((start, function))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a stream that arrives in these pieces: lines, and marks as `<3>`.
    fn cut(pieces: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        let mut give = |piece: Piece<'_>| {
            seen.push(match piece {
                Piece::Line(line) => String::from_utf8_lossy(line).into_owned(),
                Piece::Mark(function) => format!("<{function}>"),
            });
        };
        for piece in pieces {
            lines.feed(piece, &mut give);
        }
        lines.flush(&mut give);
        seen
    }

    #[test]
    fn lines_are_whole_and_bounded() {
        let long = [b'x'; LONGEST_LINE + 1];
        let seen = cut(&[b"a\nb", b"c\n\n", &long, b"rest of it\nlast"]);
        assert_eq!(seen, ["a", "bc", "", &"x".repeat(LONGEST_LINE), "last"]);
    }

    #[test]
    fn o6_marks_are_found_wherever_they_stand() {
        assert_eq!(cut(&[b"a\n\0guerdon:3\nb\n"]), ["a", "<3>", "b"]);
        assert_eq!(cut(&[b"no end\0guer", b"don:12", b"\nb"]), ["no end", "<12>", "b"]);
        let long = "x".repeat(3 * LONGEST_LINE);
        assert_eq!(cut(&[long.as_bytes(), b"y\0guerdon:1\nb\n"]), [&long[..LONGEST_LINE], "<1>", "b"]);
        assert_eq!(cut(&[long.as_bytes(), b"\0guerdon", b":1\nb\n"]), [&long[..LONGEST_LINE], "<1>", "b"]);
        // What is no mark is a line.
        assert_eq!(cut(&[b"\0guerdon:\n\0guerdon:x\n"]), ["\0guerdon:", "\0guerdon:x"]);
    }

    #[test]
    fn o7_a_return_ends_a_line_and_nothing_reaches_the_terminal_as_a_command() {
        assert_eq!(cut(&[b"\r 10%\r 20%\r\n", b"done\r", b"\nnext\n\n"]), [" 10%", " 20%", "done", "next", ""]);
        assert_eq!(shown(b"red \x1b[31m \t\x9b\0"), "red \\x1b[31m \t\u{FFFD}\\x00");
        assert_eq!(shown("gr\u{fc}n \u{9b}".as_bytes()), "gr\u{fc}n \\x9b");
    }

    proptest::proptest! {
        #[test]
        fn o6_o7_any_bytes_in_any_pieces_give_bounded_lines(stream: Vec<u8>, cuts: Vec<proptest::sample::Index>) {
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            ends.extend([0, stream.len()]);
            ends.sort_unstable();
            let pieces: Vec<&[u8]> = ends.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect();
            let whole = cut(&[&stream]);
            proptest::prop_assert_eq!(&cut(&pieces), &whole);
            proptest::prop_assert!(whole.iter().all(|line| !line.contains(['\n', '\r'])));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn o2_what_was_dropped_last_is_told_without_another_line() {
        let (sent, mut seen) = mpsc::unbounded_channel();
        let printer = Printer::start(Arc::new(move |lines: &[u8]| {
            sent.send(String::from_utf8_lossy(lines).into_owned()).ok();
        }));
        let print = |count: u32| (0..count).for_each(|_| printer.line("f 1", b"x"));
        print(LINES_A_SECOND + 7);
        tokio::time::sleep(2 * SECOND).await;
        let mut all = String::new();
        while let Ok(lines) = seen.try_recv() {
            all.push_str(&lines);
        }
        assert!(all.ends_with("[guerdon] 7 lines of output were dropped (1000 a second are shown)\n"), "{all}");
        print(LINES_A_SECOND + 2);
        printer.flush().await;
        let last = seen.recv().await.unwrap();
        assert!(last.ends_with("[guerdon] 2 lines of output were dropped (1000 a second are shown)\n"), "{last}");
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
