//! Requests a worker's Python stack: at a signal `faulthandler` writes it into one of our files,
//! even while C code holds the GIL. `python/guerdon/_worker/stack_dump.py` has the other side.
//!
//! - The signal is sent only if a handler is installed and not blocked and its descriptor is still
//!   ours, because by default it would kill. A handler that the running call installed is called.
//! - A stack counts for a call only if the call was running before and after.
//! - One request at a time, and none before the handler of the former has returned.

use std::time::Duration;

use rustix::process::Signal;
use rustix_libc_wrappers::process::SignalExt;
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};

use crate::child::Child;
use crate::stack_file::{NAME, is_begun, is_whole, shown};

/// Interval of reads of the file.
const PAUSE: Duration = Duration::from_millis(1);
/// A stack without a visible end counts as complete when it has not grown for this long.
const QUIET: Duration = Duration::from_millis(20);

/// Reason for a missing stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoStack {
    #[error("the worker cannot report its stack")]
    NotOffered,
    #[error("the function replaced or blocked the signal that requests the stack, or closed the file it is written to")]
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

impl Child {
    /// Returns the stack of the claimed call or phase, outermost frame first, without frames of the
    /// folder `ours`.
    pub(super) async fn stack(&self, claim: u64, ours: &str, within: Duration) -> Result<String, NoStack> {
        let end = Instant::now() + within;
        let Ok(mut asked) = timeout(within, self.stack.requests.lock()).await else { return Err(NoStack::Silent) };
        let signal = self.request_signal(*asked, end).await?;
        if !self.claims(claim) {
            return Err(NoStack::Over);
        }
        self.stack.clear().map_err(|_| NoStack::NotOffered)?;
        self.pidfd.signal(signal).map_err(|_| NoStack::Ended)?;
        *asked = true;
        let text = self.answer(signal.as_raw(), end).await?;
        if !self.claims(claim) {
            return Err(NoStack::Over);
        }
        shown(&text, ours).ok_or(NoStack::Empty)
    }

    fn claims(&self, claim: u64) -> bool {
        self.page.read().is_ok_and(|page| page.progress() == claim)
    }

    /// Returns the signal that requests the stack, if it can be sent. If there was a request before
    /// (`asked`), waits for its signal first.
    async fn request_signal(&self, asked: bool, end: Instant) -> Result<Signal, NoStack> {
        let offer = self.page.read().map_err(|_| NoStack::NotOffered)?.stack();
        let number = i32::try_from(offer >> 32).unwrap_or(0);
        let signal = number.checked_sub(Signal::rt_min().as_raw()).filter(|n| *n >= 0).and_then(Signal::rt);
        let signal = signal.ok_or(NoStack::NotOffered)?;
        let mut state = self.signals(number)?;
        while asked && state.answers() && Instant::now() < end {
            sleep(PAUSE).await;
            state = self.signals(number)?;
        }
        if state.stopped {
            return Err(NoStack::Stopped);
        }
        if state.pending {
            return Err(NoStack::Silent);
        }
        let pid = self.pid.as_raw_nonzero();
        let file = std::fs::read_link(format!("/proc/{pid}/fd/{}", offer & 0xFFFF_FFFF));
        let ours = file.is_ok_and(|path| {
            path.to_string_lossy().strip_prefix("/memfd:").is_some_and(|path| path.starts_with(NAME))
        });
        if state.caught && !state.blocked && ours { Ok(signal) } else { Err(NoStack::Taken) }
    }

    fn signals(&self, number: i32) -> Result<Signals, NoStack> {
        let pid = self.pid.as_raw_nonzero();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(|_| NoStack::Ended)?;
        Ok(Signals::read(&status, number))
    }

    /// Waits until the stack has been written: until its end is visible, or the signal's handler
    /// has returned.
    async fn answer(&self, number: i32, end: Instant) -> Result<String, NoStack> {
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
            // A worker that waits for a processor while it writes does not grow the file either.
            let quiet = || now - grown >= QUIET && !self.signals(number).is_ok_and(|state| state.answers());
            if is_whole(&last) || (is_begun(&last) && (now >= end || quiet())) {
                return Ok(last);
            }
            if now >= end {
                return Err(NoStack::Silent);
            }
        }
    }
}

/// The kernel's state of a process and one signal.
#[derive(Debug, Default, PartialEq, Eq)]
struct Signals {
    stopped: bool,
    pending: bool,
    blocked: bool,
    caught: bool,
}

impl Signals {
    /// Returns whether a signal that was sent is still pending, or its handler, which blocks it,
    /// still runs.
    fn answers(&self) -> bool {
        !self.stopped && (self.pending || (self.caught && self.blocked))
    }

    /// Reads the text of `/proc/<pid>/status`, which describes the main thread.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_status_shows_a_signal() {
        let status = "Name:\tpython\nState:\tR (running)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\nSigBlk:\t0000000000000000\nSigIgn:\t0000000001001000\nSigCgt:\t0020000000000000\n";
        let ready = Signals { caught: true, ..Signals::default() };
        assert_eq!(Signals::read(status, 54), ready);
        assert_eq!(Signals::read(status, 55), Signals::default());
        assert_eq!(Signals::read(status, 0), Signals::default());
        assert!(Signals::read(&status.replace("R (running)", "T (stopped)"), 54).stopped);
        assert!(!ready.answers());
        let taken = status.replace("SigBlk:\t0000", "SigBlk:\t0020");
        assert!(Signals::read(&taken, 54).answers());
        assert!(!Signals::read(&taken.replace("R (running)", "T (stopped)"), 54).answers());
        let sent = status.replace("SigPnd:\t0000", "SigPnd:\t0020");
        assert!(Signals::read(&sent, 54).answers());
        assert!(Signals::read("", 54) == Signals::default());
    }
}
