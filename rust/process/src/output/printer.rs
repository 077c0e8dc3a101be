//! Writes the lines of all workers of a lane to its sink, at a bounded rate.
//!
//! - One thread at a time writes, and lines keep their order: a terminal that blocks delays no
//!   other work.
//! - A bounded number of lines waits for the sink; further ones are dropped, and their number is
//!   written.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::Sink;
use crate::blocking;

const LINES_A_SECOND: u32 = 1000;
const SECOND: Duration = Duration::from_secs(1);
/// Lines that may wait for the sink.
const WAITING: usize = 4096;
/// Time in which the terminal must take the remaining lines.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// See the module.
pub struct Printer {
    lines: mpsc::Sender<Item>,
    second: Mutex<Second>,
    /// Number of dropped lines. Written by every worker's reader.
    dropped: AtomicU64,
}

enum Item {
    Line(String),
    /// Answered after all lines before it are written.
    Flush(oneshot::Sender<()>),
}

struct Second {
    start: Option<Instant>,
    lines: u32,
    dropped: u64,
}

/// A line as text for a terminal.
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

fn report(dropped: u64) -> String {
    format!("[guerdon] {dropped} lines of output were dropped ({LINES_A_SECOND} a second are shown)\n")
}

impl Printer {
    /// Starts the task that writes, on the runtime of the caller; it ends with the printer.
    #[must_use]
    pub fn start(sink: Sink) -> Arc<Self> {
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
                // A terminal may block, so the sink runs on a separate thread. If the sink
                // panicked, the lines are lost.
                let _ = blocking::run(move || sink(text.as_bytes())).await;
                for answer in flushed {
                    let _ = answer.send(()); // the receiver may be gone
                }
            }
        });
        Arc::new(Self {
            lines,
            second: Mutex::new(Second { start: None, lines: 0, dropped: 0 }),
            dropped: AtomicU64::new(0),
        })
    }

    /// Number of lines dropped since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn send(&self, line: String) -> bool {
        self.lines.try_send(Item::Line(line)).is_ok()
    }

    /// Waits until the output so far is written, or until a blocking terminal has had its time.
    pub async fn last_words(&self) {
        let _ = timeout(LAST_WORDS, self.flush()).await;
    }

    /// Waits until the output so far is written.
    async fn flush(&self) {
        let dropped = std::mem::take(&mut self.second.lock().dropped);
        if dropped > 0 {
            let _ = self.lines.send(Item::Line(report(dropped))).await; // an error: as below
        }
        let (answer, flushed) = oneshot::channel();
        if self.lines.send(Item::Flush(answer)).await.is_ok() {
            // An error means that the task and the waiting lines are gone.
            let _ = flushed.await;
        }
    }

    /// Writes a line with its source before it, or drops it.
    pub fn line(self: &Arc<Self>, source: &str, line: &[u8]) {
        let (dropped_before, first) = {
            let mut second = self.second.lock();
            let now = Instant::now();
            let dropped_before = if second.start.is_none_or(|start| now - start >= SECOND) {
                second.start = Some(now);
                second.lines = 0;
                std::mem::take(&mut second.dropped)
            } else {
                0
            };
            second.lines += 1;
            let dropped = second.lines > LINES_A_SECOND;
            second.dropped += u64::from(dropped);
            (dropped_before, dropped.then_some(second.dropped == 1))
        };
        self.report_dropped(dropped_before);
        if let Some(first) = first {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            if first {
                self.report_dropped_later();
            }
        } else if !self.send(format!("[guerdon {source}] {}\n", shown(line))) {
            self.second.lock().dropped += 1;
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes a line of the lane itself.
    pub(crate) fn lane_line(&self, text: &str) {
        self.send(format!("[guerdon] {text}\n"));
    }

    /// Writes how many lines were dropped; if there is room for no other line, later.
    fn report_dropped(&self, dropped: u64) {
        if dropped > 0 && !self.send(report(dropped)) {
            self.second.lock().dropped += dropped;
        }
    }

    /// Writes the number at the end of the second, unless a later line does it first.
    fn report_dropped_later(self: &Arc<Self>) {
        let printer = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(SECOND).await;
            if let Some(printer) = printer.upgrade() {
                let dropped = std::mem::take(&mut printer.second.lock().dropped);
                printer.report_dropped(dropped);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_as_a_command() {
        assert_eq!(shown(b"red \x1b[31m \t\x9b\0"), "red \\x1b[31m \t\u{FFFD}\\x00");
        assert_eq!(shown("gr\u{fc}n \u{9b}".as_bytes()), "gr\u{fc}n \\x9b");
    }

    #[tokio::test(start_paused = true)]
    async fn last_drops_are_reported_without_another_line() {
        let (sent, mut seen) = mpsc::unbounded_channel();
        let printer = Printer::start(Arc::new(move |lines: &[u8]| {
            sent.send(String::from_utf8_lossy(lines).into_owned()).ok();
        }));
        let print = |count: u32| (0..count).for_each(|_| printer.line("f 1", b"x"));
        print(LINES_A_SECOND + 7);
        tokio::time::sleep(2 * SECOND).await;
        let mut all = String::new();
        while !all.contains("were dropped") {
            all.push_str(&seen.recv().await.unwrap()); // the paused clock waits for no thread
        }
        assert!(all.ends_with("[guerdon] 7 lines of output were dropped (1000 a second are shown)\n"), "{all}");
        print(LINES_A_SECOND + 2);
        printer.flush().await;
        let last = seen.recv().await.unwrap();
        assert!(last.ends_with("[guerdon] 2 lines of output were dropped (1000 a second are shown)\n"), "{last}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_sink_that_blocks_holds_up_nobody_and_what_waits_is_bounded() {
        let (go_on, blocked) = std::sync::mpsc::channel::<()>();
        let (blocked, (sent, mut seen)) = (Mutex::new(blocked), mpsc::unbounded_channel());
        let (writing, most) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
        let at_once = most.clone();
        let printer = Printer::start(Arc::new(move |lines: &[u8]| {
            at_once.fetch_max(writing.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let _ = blocked.lock().recv(); // an error: from now on it blocks no more
            writing.fetch_sub(1, Ordering::SeqCst);
            sent.send(String::from_utf8_lossy(lines).into_owned()).ok();
        }));
        for number in 0..20_000_u32 {
            printer.line("f 1", number.to_string().as_bytes());
            if number % LINES_A_SECOND == LINES_A_SECOND - 1 {
                tokio::time::sleep(SECOND).await;
            }
        }
        // It has the present line, and the waiting ones: each no more than the channel holds.
        let dropped = printer.dropped();
        assert!((20_000 - 2 * WAITING as u64..20_000 - WAITING as u64).contains(&dropped), "{dropped}");
        drop(go_on);
        printer.flush().await;
        tokio::time::sleep(SECOND).await;
        printer.line("f 1", b"after");
        drop(printer);
        let mut all = String::new();
        while let Some(lines) = seen.recv().await {
            all.push_str(&lines);
        }
        let numbers = all.lines().filter_map(|line| line.strip_prefix("[guerdon f 1] ")?.parse::<u64>().ok());
        let numbers: Vec<u64> = numbers.collect();
        assert!(numbers.is_sorted() && numbers.len() as u64 == 20_000 - dropped, "{} {dropped}", numbers.len());
        let reports =
            all.lines().filter_map(|line| line.strip_prefix("[guerdon] ")?.split(' ').next()?.parse::<u64>().ok());
        assert_eq!(reports.sum::<u64>(), dropped, "{all}");
        assert_eq!(most.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_lines_are_dropped_counted_and_reported() {
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
