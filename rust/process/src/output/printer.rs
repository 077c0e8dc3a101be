//! Writes the lines of all workers of a lane to its sink, at a bounded rate.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Sink;
use crate::blocking;

const LINES_A_SECOND: u32 = 1000;
const SECOND: Duration = Duration::from_secs(1);
/// Lines that may wait for the terminal.
const WAITING: usize = 4096;

/// Takes the lines of all workers of a lane.
pub(crate) struct Printer {
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

impl Printer {
    /// Starts the task that writes; it ends with the printer.
    pub(crate) fn start(sink: Sink) -> Arc<Self> {
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
                // A terminal may block: not on a thread that others need. A sink that panicked has
                // nothing more to say.
                let _ = blocking::run(move || sink(text.as_bytes())).await;
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
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn send(&self, line: String) -> bool {
        self.lines.try_send(Item::Line(line)).is_ok()
    }

    /// Waits until what was printed so far is written.
    pub(crate) async fn flush(&self) {
        let dropped = std::mem::take(&mut self.second.lock().dropped);
        self.tell(dropped);
        let (answer, flushed) = oneshot::channel();
        if self.lines.send(Item::Flush(answer)).await.is_ok() {
            // An error: the task is gone, and so is what waited.
            let _ = flushed.await;
        }
    }

    pub(super) fn line(self: &Arc<Self>, source: &str, line: &[u8]) {
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
        self.tell(dropped_before);
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

    /// Says something of the lane itself.
    pub(crate) fn say(&self, text: &str) {
        self.send(format!("[guerdon] {text}\n"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_as_a_command() {
        assert_eq!(shown(b"red \x1b[31m \t\x9b\0"), "red \\x1b[31m \t\u{FFFD}\\x00");
        assert_eq!(shown("gr\u{fc}n \u{9b}".as_bytes()), "gr\u{fc}n \\x9b");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_dropped_last_is_reported_without_another_line() {
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
