//! The page that a worker shares with its supervisor; `python/guerdon/_worker/shared_page.py` has
//! the other side. The worker maps it; the supervisor uses `pread` and `pwrite`: no unsafe code.
//!
//! - Only the worker writes to it: it seals the page, which others find under `/proc/<trainer>/fd`.
//!   The supervisor's words, `TAKEN`, `FIRE` and `COUNTED`, are in a page before the stack.
//! - shared-page-1  Each word of a snapshot is atomic, the snapshot is not: an action that depends
//!   on two words needs two equal snapshots.
//! - Any content of the page can be read safely: indices and numbers are checked.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::stack_file::StackFile;

/// Bit in the state of a call: the call sent messages before its value.
const REPORTED: u8 = 0x80;

/// Most calls in one frame.
pub(super) const CALLS: usize = 64;

/// Phases in the low byte of a claim; calls have other values there.
pub(super) const IMPORTING: u8 = 0xFC;
pub(super) const DECODING: u8 = 0xFD;
pub(super) const LOADING: u8 = 0xFE;
pub(super) const SETUP: u8 = 0xFF;

const SIZE: u64 = 4096;
const PROGRESS: usize = 0;
const DONE: usize = 8;
const TAKEN: u64 = 16;
const FIRE: u64 = 24;
const STACK: usize = 32;
const COUNTED: u64 = 40;
const HEAD: usize = 64;
const VALUES: usize = 8 * (CALLS + 1);
const STATES: usize = VALUES + 8 * CALLS;
const HALF: usize = 1152;
const USED: usize = HEAD + 2 * HALF;

/// The supervisor's end of the page.
pub(super) struct SharedPage {
    fd: OwnedFd,
    /// File with the supervisor's words.
    commands: Arc<OwnedFd>,
    /// The last frame that was taken back. Written by the supervisor.
    taken: AtomicU64,
}

impl SharedPage {
    /// Makes the page; the supervisor's words are in the file of `stack`.
    pub(super) fn new(stack: &StackFile) -> io::Result<Self> {
        let fd = rustix::fs::memfd_create("guerdon-page", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, SIZE)?;
        // The worker adds the seals against writing and against further seals.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(Self { fd, commands: stack.shared(), taken: AtomicU64::new(0) })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the present content of the page.
    pub(super) fn read(&self) -> io::Result<PageSnapshot> {
        let mut bytes = [0; USED];
        rustix::io::pread(&self.fd, &mut bytes, 0)?;
        bytes[TAKEN as usize..][..8].copy_from_slice(&self.taken.load(Ordering::Relaxed).to_ne_bytes());
        Ok(PageSnapshot { bytes })
    }

    /// Requests that the worker starts no call of this frame or an earlier one.
    pub(super) fn take_back(&self, frame: u64) -> io::Result<()> {
        self.taken.store(frame, Ordering::Relaxed);
        self.write(TAKEN, frame)
    }

    /// Sets the claim that the next timeout signal is for.
    pub(super) fn aim(&self, claim: u64) -> io::Result<()> {
        self.write(FIRE, claim)
    }

    /// Records that the output before the call of this frame has been counted.
    pub(super) fn counted(&self, frame: u64) -> io::Result<()> {
        self.write(COUNTED, frame)
    }

    fn write(&self, at: u64, word: u64) -> io::Result<()> {
        rustix::io::pwrite(&self.commands, &word.to_ne_bytes(), at)?;
        Ok(())
    }
}

/// A snapshot of the page.
pub(super) struct PageSnapshot {
    bytes: [u8; USED],
}

impl PageSnapshot {
    /// Returns the snapshot of a page that can't be read.
    pub(super) const fn empty() -> Self {
        Self { bytes: [0; USED] }
    }

    /// A page with these words and nothing else in it.
    #[cfg(test)]
    pub(super) fn of(words: impl IntoIterator<Item = (usize, u64)>) -> Self {
        let mut made = Self::empty();
        for (at, word) in words {
            let at = at % (USED / 8) * 8;
            made.bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        made
    }

    /// A page on which calls of a frame gave these values. `times_ns` has the start of each call,
    /// and the start of the next call or the end of the frame.
    #[cfg(test)]
    pub(super) fn after(frame: u64, values: &[f64], times_ns: &[u64], ended: bool) -> Self {
        let at = half(frame) / 8;
        let stamps = times_ns.iter().enumerate().map(|(call, time)| (at + call, *time));
        let gave = values.iter().enumerate().map(|(call, value)| (at + VALUES / 8 + call, value.to_bits()));
        let (claim, done) = if ended { (0, values.len() as u64) } else { (values.len() as u64 + 1, 0) };
        let done = if ended { frame << 8 | done } else { 0 };
        Self::of(stamps.chain(gave).chain([(PROGRESS / 8, frame << 8 | claim), (DONE / 8, done)]))
    }

    #[cfg(test)]
    pub(super) fn words(&self) -> impl Iterator<Item = (usize, u64)> {
        (0..USED / 8).map(|at| (at, self.word(8 * at)))
    }

    /// The progress word: `frame << 8 | call + 1`, or a phase in the low byte, or 0 there between
    /// calls.
    pub(super) fn progress(&self) -> u64 {
        self.word(PROGRESS)
    }

    /// Returns the handler for stacks: `signal << 32 | descriptor`, 0 without a handler.
    pub(super) fn stack(&self) -> u64 {
        self.word(STACK)
    }

    /// Returns the number of calls that the frame had run when it ended, if it has ended.
    pub(super) fn done(&self, frame: u64) -> Option<usize> {
        let word = self.word(DONE);
        (word >> 8 == frame).then_some((word & 0xFF) as usize)
    }

    /// The last frame none of whose calls may start any more, as the supervisor wrote it.
    pub(super) fn taken(&self) -> u64 {
        self.word(TAKEN as usize)
    }

    /// The last frame that ended.
    pub(super) fn last_done(&self) -> u64 {
        self.word(DONE) >> 8
    }

    /// The time when a call of the frame started, which is when the one before it ended.
    pub(super) fn stamp(&self, frame: u64, call: usize) -> u64 {
        if call > CALLS { 0 } else { self.word(half(frame) + 8 * call) }
    }

    /// Returns the value of a call of the frame.
    pub(super) fn value(&self, frame: u64, call: usize) -> f64 {
        if call >= CALLS { f64::NAN } else { f64::from_bits(self.word(half(frame) + VALUES + 8 * call)) }
    }

    /// The status of a call of the frame.
    pub(super) fn state(&self, frame: u64, call: usize) -> u8 {
        if call >= CALLS { u8::MAX } else { self.bytes[half(frame) + STATES + call] & !REPORTED }
    }

    /// Returns whether a call of the frame sent messages before its value.
    pub(super) fn reported(&self, frame: u64, call: usize) -> bool {
        call < CALLS && self.bytes[half(frame) + STATES + call] & REPORTED != 0
    }

    fn word(&self, at: usize) -> u64 {
        self.bytes[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }
}

/// Returns the beginning of a frame's half.
const fn half(frame: u64) -> usize {
    HEAD + (frame as usize & 1) * HALF
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_two_halves_do_not_meet() {
        let page = SharedPage::new(&StackFile::new().unwrap()).unwrap();
        let write = |at: usize, word: u64| rustix::io::pwrite(&page.fd, &word.to_ne_bytes(), at as u64).unwrap();
        write(half(2) + VALUES + 8 * 63, 1.5f64.to_bits());
        write(half(3), 77);
        write(half(2) + 8 * CALLS, 99);
        page.take_back(5).unwrap();
        let seen = page.read().unwrap();
        assert_eq!((seen.value(2, 63), seen.state(2, 0)), (1.5, 0));
        assert_eq!((seen.stamp(3, 0), seen.stamp(2, 64), seen.stamp(3, 64)), (77, 99, 0));
        assert_eq!(seen.taken(), 5);
    }

    #[test]
    fn indices_beyond_the_page_are_harmless() {
        let seen = SharedPage::new(&StackFile::new().unwrap()).unwrap().read().unwrap();
        assert_eq!((seen.stamp(u64::MAX, 65), seen.state(1, 64)), (0, u8::MAX));
        assert!(seen.value(0, usize::MAX).is_nan());
        assert_eq!(seen.done(3), None);
    }
}
