//! Amount of work for a node: enough that its workers never wait for calls.
//!
//! - A worker has a running frame, and waiting frames for the time until others can come. Messages
//!   may wait for each other on their way, and reports for others to be sent together.
//! - A node is low when its workers will run out of frames before others could be moved to it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Least number of waiting frames for each worker: of two, one may be in the worker's socket
/// already, and the other can still be moved.
const AHEAD: usize = 2;
/// The most frames that wait for each worker, however short they are.
const MOST_AHEAD: usize = 64;
/// Work that waits for each worker, in addition to the frames that it runs in two round trips:
/// enough for reports and frames to wait for others to be sent together.
const WAITING_NS: u64 = 25_000_000;
/// Work for each worker below which reports don't wait for others, unless they are of short frames
/// (`WORTH_NS`).
const FEW_NS: u64 = 15_000_000;
/// Longest time that a report waits for others: the longest linger of a transport.
const LINGER_NS: u64 = 10_000_000;
/// Time to request a frame and to send it, in addition to round trips.
const MOVE_NS: u64 = 6_000_000;
/// Shorter frames move only to workers that have none: sending a frame again costs as much as
/// running it, and so does reporting each.
pub(crate) const WORTH_NS: u64 = 1_000_000;

/// Backlog of a node. Written by the node's session, and `claimed` by `balance` too; an agent has
/// one for each driver.
#[derive(Default)]
pub(crate) struct Backlog {
    /// Approximate time of a frame and of a round trip; 0 before the first measurement.
    frame_ns: AtomicU64,
    round_trip_ns: AtomicU64,
    /// Frames that may move, because their beginning was not reported.
    movable: AtomicUsize,
    /// Number of these that were requested back, or are about to be.
    claimed: AtomicUsize,
}

impl Backlog {
    /// Updates the time of a frame.
    pub(crate) fn frame_ran(&self, run_ns: u64) {
        let known = self.frame_ns.load(Ordering::Relaxed);
        let now = if known == 0 { run_ns } else { known / 8 * 7 + run_ns / 8 };
        self.frame_ns.store(now.max(1), Ordering::Relaxed);
    }

    /// Updates the time of a round trip; recent ones count most.
    pub(crate) fn round_trip(&self, ns: u64) {
        let known = self.round_trip_ns.load(Ordering::Relaxed);
        self.round_trip_ns.store(if known == 0 { ns } else { known / 2 + ns / 2 }, Ordering::Relaxed);
    }

    /// Returns the number of frames that the workers run within `trips` round trips and `more_ns`;
    /// `None` before the first measurement.
    fn frames_within(&self, workers: usize, trips: u64, more_ns: u64) -> Option<usize> {
        let all_ns = self.round_trip_ns.load(Ordering::Relaxed).saturating_mul(trips).saturating_add(more_ns);
        let frames = all_ns.saturating_mul(workers as u64).checked_div(self.frame_ns.load(Ordering::Relaxed))?;
        Some(usize::try_from(frames).unwrap_or(usize::MAX))
    }

    /// The most frames that the node should have.
    pub(crate) fn window(&self, workers: usize) -> usize {
        let (least, most) = (workers.saturating_mul(AHEAD), workers.saturating_mul(MOST_AHEAD));
        let waiting = self.frames_within(workers, 2, WAITING_NS).map_or(least, |frames| frames.clamp(least, most));
        workers.saturating_add(waiting)
    }

    /// Returns the number of frames at which ends are reported at once, unless the frames are short
    /// (`WORTH_NS`).
    pub(crate) fn few(&self, workers: usize) -> usize {
        let waiting = self.frames_within(workers, 0, FEW_NS).unwrap_or(0);
        workers.saturating_add(waiting.clamp(workers, workers.saturating_mul(MOST_AHEAD / 2)))
    }

    /// Returns the largest number of frames that may have begun after a silence of `silent_ns`: the
    /// frames that run, and the frames whose reports would be here by now.
    pub(crate) fn may_have_begun(&self, workers: usize, silent_ns: u64) -> usize {
        let unheard = self.frames_within(workers, 1, LINGER_NS.saturating_add(silent_ns));
        unheard.map_or(usize::MAX, |frames| workers.saturating_add(frames.max(workers)))
    }

    /// Returns the number of frames below which the node is low.
    pub(crate) fn low(&self, workers: usize) -> usize {
        let worth = self.frame_ns.load(Ordering::Relaxed) >= WORTH_NS;
        let within = if worth { self.frames_within(workers, 2, MOVE_NS) } else { None };
        let waiting = within.map_or(0, |frames| frames.saturating_add(1));
        workers.saturating_add(waiting.min(workers.saturating_mul(MOST_AHEAD / 2)))
    }

    /// Number of frames that may move and were not requested back.
    pub(crate) fn unclaimed(&self) -> usize {
        self.movable.load(Ordering::Acquire).saturating_sub(self.claimed())
    }

    pub(crate) fn claimed(&self) -> usize {
        self.claimed.load(Ordering::Acquire)
    }

    /// Records that `frames` frames are about to be requested back.
    pub(crate) fn claim(&self, frames: usize) {
        self.claimed.fetch_add(frames, Ordering::AcqRel);
    }

    /// Releases `frames` claims whose frames were gone or have ended.
    pub(crate) fn unclaim(&self, frames: usize) {
        self.claimed.fetch_sub(frames, Ordering::AcqRel);
    }

    /// Records that a frame was sent that may move.
    pub(crate) fn may_move(&self) {
        self.movable.fetch_add(1, Ordering::AcqRel);
    }

    /// Records that such a frame has begun or ended.
    pub(crate) fn stays(&self) {
        self.movable.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn backlog(frame_ns: u64, round_trip_ns: u64) -> Backlog {
        let backlog = Backlog::default();
        backlog.frame_ran(frame_ns);
        backlog.round_trip(round_trip_ns);
        backlog
    }

    #[test]
    fn a_window_covers_the_way_of_reports_and_frames() {
        assert_eq!((Backlog::default().window(4), Backlog::default().low(4)), (12, 4));
        // 29 ms hold not quite six calls of 5 ms, for each worker.
        assert_eq!((backlog(5 * MS, 2 * MS).window(2), backlog(5 * MS, 2 * MS).low(2)), (13, 7));
        // Two slow calls wait, and no node requests more before a worker is idle soon.
        assert_eq!((backlog(1000 * MS, 2 * MS).window(4), backlog(1000 * MS, 2 * MS).low(4)), (12, 5));
        // Behind a slow link more wait, up to a bound.
        assert_eq!(backlog(5 * MS, 100 * MS).window(1), 1 + 45);
        assert_eq!((backlog(MS, u64::MAX).window(2), backlog(MS, u64::MAX).low(2)), (2 * 65, 2 * 33));
        // The bound of calls on the way holds for calls that take no time; none goes to and fro.
        assert_eq!((backlog(1, 2 * MS).window(2), backlog(1, 2 * MS).low(2)), (2 * 65, 2));
    }

    #[test]
    fn reports_wait_where_there_is_enough_to_do() {
        assert_eq!(Backlog::default().few(2), 4);
        assert_eq!((backlog(5 * MS, 0).few(2), backlog(1000 * MS, 0).few(2), backlog(1, 0).few(2)), (8, 4, 66));
    }

    #[test]
    fn started_calls_stay_in_flight_until_reported() {
        assert_eq!(Backlog::default().may_have_begun(2, 0), usize::MAX);
        let backlog = backlog(5 * MS, MS);
        // After silences of 11 ms, and of 1011.
        assert_eq!((backlog.may_have_begun(2, 0), backlog.may_have_begun(2, 1000 * MS)), (2 + 4, 2 + 404));
    }

    #[test]
    fn frames_that_are_asked_for_are_not_there_for_others() {
        let backlog = Backlog::default();
        (0..3).for_each(|_| backlog.may_move());
        backlog.claim(2);
        assert_eq!((backlog.unclaimed(), backlog.claimed()), (1, 2));
        backlog.stays();
        backlog.stays();
        assert_eq!(backlog.unclaimed(), 0);
        backlog.unclaim(2);
        assert_eq!((backlog.unclaimed(), backlog.claimed()), (1, 0));
    }
}
