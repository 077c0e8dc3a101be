//! Where a worker's Python stands: asked for by a signal, written by `faulthandler`, read from a memory file. `python/guerdon/_worker/stack.py` is
//! the other side.
//!
//! - T-1  It works whatever the worker does, C code that holds the GIL included: nothing of Python has to run.
//! - T-2  The signal is sent only where it can do nothing else: the worker said which, a handler is in place and not blocked, and the descriptor
//!   that it writes to is still ours. Whose handler it is the kernel does not say: one that the call in hand has put there is called. By default the
//!   signal would kill, and another file behind the descriptor be written to.
//! - T-3  An answer is bounded, in bytes by the size of the file, in time by who asks; a worker that is stopped gives none.
//! - T-4  A stack is that of a claim only if the claim was in hand before and after.
//! - T-5  One asks at a time, and none while an earlier signal waits to be taken: an answer is to the question.
//! - T-6  What stands in the file is shown, never believed: any bytes are a text.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, SeekFrom};
use rustix::process::Signal;
use rustix_libc_wrappers::process::SignalExt;
use thiserror::Error;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::child::Child;

/// Room for a hundred frames, which is what `faulthandler` writes at most.
const SIZE: usize = 64 << 10;
/// Most bytes of a stack that is shown.
const LONGEST: usize = 16 << 10;
/// Between two looks at the file.
const PAUSE: Duration = Duration::from_millis(1);
/// A stack whose end does not show is whole when it has not grown for this long.
const QUIET: Duration = Duration::from_millis(20);
const HEADER: &str = "Stack (most recent call first):";

/// The file that a worker's stack is written to.
pub(super) struct Stack {
    fd: OwnedFd,
    /// Held by whoever asks (T-5).
    asking: Mutex<()>,
}

/// Why there is no stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoStack {
    #[error("the worker did not say how to ask for it")]
    NotOffered,
    #[error("the function took the signal that asks for it, blocks it, or closed what it is written to")]
    Taken,
    #[error("the worker process is stopped")]
    Stopped,
    #[error("the worker process has ended")]
    Ended,
    #[error("the worker did not answer in time")]
    Silent,
    #[error("the call ended meanwhile")]
    Over,
    #[error("none of the user's code is on it")]
    Empty,
}

impl Stack {
    pub(super) fn new() -> io::Result<Self> {
        let fd = rustix::fs::memfd_create("guerdon-stack", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, SIZE as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self { fd, asking: Mutex::default() })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Empties the file; what is written next stands at its beginning, since both ends share one position.
    fn clear(&self) -> io::Result<()> {
        rustix::fs::fallocate(&self.fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, SIZE as u64)?;
        rustix::fs::seek(&self.fd, SeekFrom::Start(0))?;
        Ok(())
    }

    fn read(&self) -> String {
        let mut bytes = vec![0; SIZE];
        let got = rustix::io::pread(&self.fd, &mut bytes, 0).unwrap_or(0);
        bytes.truncate(got);
        if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
            bytes.truncate(end);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Child {
    /// The stack of the call or phase that is claimed, outermost frame first; `ours` is the folder whose frames are left out.
    pub(super) async fn stack(&self, claim: u64, ours: &str, within: Duration) -> Result<String, NoStack> {
        let end = Instant::now() + within;
        let Ok(_one) = timeout(within, self.stack.asking.lock()).await else { return Err(NoStack::Silent) };
        let signal = self.asks_by()?;
        if !self.claims(claim) {
            return Err(NoStack::Over);
        }
        self.stack.clear().map_err(|_| NoStack::NotOffered)?;
        self.pidfd.signal(signal).map_err(|_| NoStack::Ended)?;
        let text = self.answer(end).await?;
        if !self.claims(claim) {
            return Err(NoStack::Over);
        }
        shown(&text, ours).ok_or(NoStack::Empty)
    }

    fn claims(&self, claim: u64) -> bool {
        self.page.read().is_ok_and(|page| page.progress() == claim)
    }

    /// The signal that asks for the stack, if it can be sent (T-2).
    fn asks_by(&self) -> Result<Signal, NoStack> {
        let offer = self.page.read().map_err(|_| NoStack::NotOffered)?.stack();
        let number = i32::try_from(offer >> 32).unwrap_or(0);
        let signal = number.checked_sub(Signal::rt_min().as_raw()).filter(|n| *n >= 0).and_then(Signal::rt);
        let signal = signal.ok_or(NoStack::NotOffered)?;
        let pid = self.pid.as_raw_nonzero();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(|_| NoStack::Ended)?;
        let state = Signals::read(&status, number);
        if state.stopped {
            return Err(NoStack::Stopped);
        }
        if state.pending {
            return Err(NoStack::Silent); // T-5
        }
        let file = std::fs::read_link(format!("/proc/{pid}/fd/{}", offer & 0xFFFF_FFFF));
        let ours = file.is_ok_and(|path| path.to_string_lossy().starts_with("/memfd:guerdon-stack"));
        if state.caught && !state.blocked && ours { Ok(signal) } else { Err(NoStack::Taken) }
    }

    /// Waits until the stack has been written.
    async fn answer(&self, end: Instant) -> Result<String, NoStack> {
        let (mut last, mut grown) = (String::new(), Instant::now());
        loop {
            tokio::select! {
                () = self.pidfd.ended() => return Err(NoStack::Ended),
                () = sleep(PAUSE) => {}
            }
            let text = self.stack.read();
            let now = Instant::now();
            if text.len() != last.len() {
                (last, grown) = (text, now);
            }
            if is_whole(&last) || (last.contains(HEADER) && (now - grown >= QUIET || now >= end)) {
                return Ok(last);
            }
            if now >= end {
                return Err(NoStack::Silent);
            }
        }
    }
}

/// What the kernel says of a process and one signal.
#[derive(Debug, Default, PartialEq, Eq)]
struct Signals {
    stopped: bool,
    pending: bool,
    blocked: bool,
    caught: bool,
}

impl Signals {
    /// From the text of `/proc/<pid>/status`, which is about the main thread.
    fn read(status: &str, number: i32) -> Self {
        let mut found = Self::default();
        let bit = u32::try_from(number - 1).ok().and_then(|shift| 1u64.checked_shl(shift)).unwrap_or(0);
        for (name, value) in status.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            let set = || u64::from_str_radix(value, 16).is_ok_and(|mask| mask & bit != 0);
            match name {
                "State" => found.stopped = value.starts_with(['T', 't']),
                "SigPnd" | "ShdPnd" => found.pending |= set(),
                "SigBlk" => found.blocked = set(),
                "SigCgt" => found.caught = set(),
                _ => {}
            }
        }
        found
    }
}

/// Whether the outermost frame, or the note that there are more, stands at the end.
fn is_whole(text: &str) -> bool {
    text.strip_suffix('\n')
        .and_then(|text| text.lines().next_back())
        .is_some_and(|line| line == "  ..." || (line.ends_with(" in <module>") && line.contains("_zygote.py\", line ")))
}

/// The last stack in what `faulthandler` wrote, in the order and the form of a traceback, without our frames; `None` if nothing is left of it.
fn shown(text: &str, ours: &str) -> Option<String> {
    let (_, frames) = text.rsplit_once(HEADER)?;
    let mut lines: Vec<String> = Vec::new();
    for line in frames.lines() {
        if line == "  ..." {
            lines.push("  …".to_owned());
        }
        let Some((file, rest)) = line.strip_prefix("  File \"").and_then(|line| line.rsplit_once("\", line ")) else {
            continue;
        };
        let Some((number, name)) = rest.split_once(" in ") else { continue };
        if !file.strip_prefix(ours).is_some_and(|rest| rest.starts_with('/')) {
            lines.push(format!("  File \"{file}\", line {number}, in {name}"));
        }
    }
    if !lines.iter().any(|line| line.starts_with("  File ")) {
        return None;
    }
    let mut shown = String::from("Stack (most recent call last):");
    let mut left = LONGEST;
    let kept = lines.iter().take_while(|line| {
        left = left.saturating_sub(line.len() + 1);
        left > 0
    });
    for line in kept.collect::<Vec<_>>().into_iter().rev() {
        shown.push('\n');
        shown.push_str(line);
    }
    shown.push('\n');
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = "Stack (most recent call first):
  File \"/u/my rewards.py\", line 7 in inner, in it
  File \"/u/my rewards.py\", line 3 in score
  File \"/g/_worker/worker.py\", line 171 in _samples
  File \"/g/_worker/_zygote.py\", line 30 in <module>
";

    #[test]
    fn a_stack_reads_like_a_traceback_without_our_frames() {
        let expected = "Stack (most recent call last):
  File \"/u/my rewards.py\", line 3, in score
  File \"/u/my rewards.py\", line 7, in inner, in it
";
        assert_eq!(shown(WRITTEN, "/g/_worker").as_deref(), Some(expected));
        // T-5: what came late for an earlier question stands before it.
        assert_eq!(shown(&format!("  File \"/x\", line 1 in old\n{WRITTEN}"), "/g/_worker").as_deref(), Some(expected));
        let deep = format!("{HEADER}\n{}  ...\n", "  File \"/u/r.py\", line 1 in down\n".repeat(100));
        assert!(shown(&deep, "/g/_worker").unwrap().starts_with("Stack (most recent call last):\n  …\n  File"));
    }

    #[test]
    fn t3_t6_any_bytes_are_bounded_text() {
        assert_eq!(shown("", "/g"), None);
        assert_eq!(shown("garbage\n  File \"", "/g"), None);
        assert_eq!(shown(&format!("{HEADER}\n  File \"/g/x.py\", line 1 in ours\n"), "/g"), None);
        let long = format!("{HEADER}\n{}", "  File \"/u\", line 1 in f\n".repeat(5000));
        assert!(shown(&long, "/g").unwrap().len() <= LONGEST + 100);
    }

    #[test]
    fn the_end_of_a_stack_shows() {
        assert!(is_whole(WRITTEN));
        assert!(!is_whole(&WRITTEN[..WRITTEN.len() - 1]));
        assert!(!is_whole("Stack (most recent call first):\n  File \"/u/x.py\", line 7 in <module>\n"));
        assert!(is_whole("Stack (most recent call first):\n  File \"/u/x.py\", line 7 in f\n  ...\n"));
    }

    #[test]
    fn t2_what_the_kernel_says_of_a_signal() {
        let status = "Name:\tpython\nState:\tR (running)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\nSigBlk:\t0000000000000000\nSigIgn:\t0000000001001000\nSigCgt:\t0020000000000000\n";
        let ready = Signals { caught: true, ..Signals::default() };
        assert_eq!(Signals::read(status, 54), ready);
        assert_eq!(Signals::read(status, 55), Signals::default());
        assert_eq!(Signals::read(status, 0), Signals::default());
        assert!(Signals::read(&status.replace("R (running)", "T (stopped)"), 54).stopped);
        assert!(Signals::read("", 54) == Signals::default());
    }

    #[test]
    fn t3_a_worker_can_not_make_the_file_grow() {
        let stack = Stack::new().unwrap();
        let bytes = vec![b'x'; SIZE + 4096];
        rustix::io::pwrite(&stack.fd, &bytes[..10], 0).unwrap();
        assert_eq!(stack.read(), "x".repeat(10));
        assert!(rustix::io::pwrite(&stack.fd, &bytes[..10], SIZE as u64).is_err());
        stack.clear().unwrap();
        assert_eq!(stack.read(), "");
    }
}
