//! Times of a frame and its calls on a track: they keep their times, and do not overlap.

use guerdon_core::tracer::{CallSpan, FrameSpan};

/// Longest delay of a frame's slice if its track was not free when it began. Clocks may stop, and
/// each slice takes at least a nanosecond.
const STANDSTILL_NS: u64 = 1000;

/// See the module.
pub(crate) struct FrameLayout {
    pub from_ns: u64,
    pub to_ns: u64,
    /// Start and end of each call that has its own slice.
    pub calls: Vec<(u64, u64)>,
}

impl FrameLayout {
    /// Lays out a frame from `from_ns` on. Its calls are sorted by their starts.
    pub(crate) fn new(span: &FrameSpan, from_ns: u64) -> Self {
        let mut free_ns = from_ns;
        let mut next = |call: &CallSpan| {
            let begin = call.started_ns.max(free_ns);
            free_ns = call.ended_ns().max(begin + 1);
            (begin, free_ns)
        };
        let calls = span.calls.iter().map(&mut next).collect();
        Self { from_ns, to_ns: span.ended_ns.max(from_ns + 1).max(free_ns), calls }
    }

    /// Lays out a frame in a gap between two slices, if it fits. It must end before the next slice
    /// begins: readers take simultaneous events in the order of the file.
    pub(crate) fn within(span: &FrameSpan, (free_ns, next_ns): (u64, u64)) -> Option<Self> {
        let layout = Self::new(span, span.started_ns.max(free_ns));
        (layout.from_ns - span.started_ns <= STANDSTILL_NS && layout.to_ns < next_ns).then_some(layout)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use guerdon_core::outcome::Status;
    use guerdon_core::tracer::{Executor, TraceEvent};
    use proptest::prelude::*;

    use super::*;
    use crate::timeline::builder::TimelineBuilder;
    use crate::timeline::item::{Item, TrackId};
    use crate::timeline::packets::EventKind;

    fn call(number: usize, (from, to): (u64, u64)) -> CallSpan {
        CallSpan {
            batch: 1,
            first: number,
            samples: 1,
            attempt: 1,
            finish: false,
            deferred: false,
            status: Status::Ok,
            ready_ns: 0,
            started_ns: from,
            run_ns: to - from,
            reason: None,
        }
    }

    /// A frame of a worker with these calls, in the order in which they are reported.
    fn frame(worker: usize, number: u64, calls: &[(u64, u64)]) -> TraceEvent {
        let (from, to) =
            (calls.iter().map(|call| call.0).min().unwrap(), calls.iter().map(|call| call.1).max().unwrap());
        let span = FrameSpan {
            frame: number,
            batch: 1,
            first: 0,
            ran: calls.len(),
            given_back: 0,
            ready_ns: 0,
            started_ns: from,
            ended_ns: to,
            last_start_ns: from,
            calls: calls.iter().enumerate().map(|(number, times)| call(number, *times)).collect(),
        };
        TraceEvent::Frame { executor: Executor::Worker(worker), function: 0, span: Box::new(span) }
    }

    /// The slices of each track by depth, as readers find them.
    fn slices(mut items: Vec<Item>) -> BTreeMap<(TrackId, u8), Vec<(u64, u64)>> {
        items.sort_by_key(Item::order);
        let (mut open, mut found): (BTreeMap<TrackId, Vec<u64>>, BTreeMap<_, Vec<_>>) = Default::default();
        for item in items {
            let stack = open.entry(item.track).or_default();
            match item.event.kind() {
                EventKind::Begin => {
                    assert_eq!(stack.len(), usize::from(item.depth), "slices overlap");
                    stack.push(item.at_ns);
                }
                EventKind::End => {
                    let from = stack.pop().expect("an end without a beginning");
                    found.entry((item.track, item.depth)).or_default().push((from, item.at_ns));
                }
                _ => {}
            }
        }
        found
    }

    /// Returns the slices of frames that are reported in this order, in parts as they are written.
    fn reported(frames: &[TraceEvent], parts: usize) -> BTreeMap<(TrackId, u8), Vec<(u64, u64)>> {
        let functions = [("one".to_owned(), "process".to_owned())];
        let mut timeline = TimelineBuilder::new((1, "guerdon"), &functions, 0, 1);
        let mut items = Vec::new();
        for part in frames.chunks(parts) {
            part.iter().for_each(|frame| timeline.take(frame.clone()));
            items.extend(timeline.take_items());
        }
        slices(items)
    }

    fn of_depth(found: &BTreeMap<(TrackId, u8), Vec<(u64, u64)>>, depth: u8) -> Vec<(u64, u64)> {
        let mut all: Vec<(u64, u64)> =
            found.iter().filter(|((_, at), _)| *at == depth).flat_map(|(_, slices)| slices.clone()).collect();
        all.sort_unstable();
        all
    }

    /// Frames of a worker, one after the other: a pause, and then calls with pauses between them.
    fn in_turn() -> impl Strategy<Value = Vec<Vec<(u64, u64)>>> {
        let calls = prop::collection::vec((1..40_u64, 1..3000_u64), 2..6);
        prop::collection::vec(calls, 1..60).prop_map(|frames| {
            let mut now = 1;
            let mut call = |(pause, length)| {
                let from = now + pause;
                now = from + length;
                (from, now)
            };
            frames.into_iter().map(|calls| calls.into_iter().map(&mut call).collect()).collect()
        })
    }

    proptest! {
        /// Each frame, and each call in it, has its own times in any order of reports, and those of
        /// a worker are on one track.
        #[test]
        fn frames_keep_their_times_in_any_order(
            (frames, order) in in_turn().prop_flat_map(|frames| {
                let numbers: Vec<usize> = (0..frames.len()).collect();
                (Just(frames), Just(numbers).prop_shuffle())
            }),
            rotated in 0..5_usize,
            parts in 1..9_usize,
        ) {
            let of = |number: &usize| {
                let mut calls = frames[*number].clone();
                let by = rotated % calls.len();
                calls.rotate_left(by);
                // The other worker does the same at the same time.
                [frame(0, *number as u64, &calls), frame(1, 1000 + *number as u64, &calls)]
            };
            let events: Vec<TraceEvent> = order.iter().flat_map(of).collect();
            let found = reported(&events, parts);
            let twice = |mut times: Vec<(u64, u64)>| {
                times.extend(times.clone());
                times.sort_unstable();
                times
            };
            prop_assert_eq!(of_depth(&found, 0), twice(frames.iter().map(|calls| (calls[0].0, calls[calls.len() - 1].1)).collect()));
            prop_assert_eq!(of_depth(&found, 1), twice(frames.concat()));
            prop_assert_eq!(found.keys().map(|(track, _)| *track).collect::<BTreeSet<_>>().len(), 2);
        }

        /// Not even what should not be, frames of one worker that overlap, costs them their times.
        #[test]
        fn frames_that_overlap_keep_their_lengths(frames in prop::collection::vec((1..200_000_u64, 1..30_000_u64), 1..150)) {
            let mut times: Vec<(u64, u64)> = frames.iter().map(|(from, length)| (*from, from + length)).collect();
            let events: Vec<TraceEvent> = times.iter().zip(0..).map(|(times, number)| frame(0, number, &[*times])).collect();
            let found = of_depth(&reported(&events, 7), 0);
            times.sort_unstable();
            prop_assert_eq!(found.len(), times.len());
            let lost = |found: &[(u64, u64)]| found.iter().map(|(from, to)| to - from).sum::<u64>();
            prop_assert!(lost(&times) <= lost(&found) + STANDSTILL_NS * times.len() as u64);
        }
    }

    #[test]
    fn slices_of_a_clock_that_stands_still_follow_each_other() {
        let frames = [frame(0, 1, &[(50, 50), (50, 50)]), frame(0, 2, &[(50, 50)]), frame(0, 3, &[(50, 90), (90, 90)])];
        let found = reported(&frames, 1);
        assert_eq!(of_depth(&found, 0), [(50, 52), (52, 53), (53, 91)]);
        assert_eq!(of_depth(&found, 1), [(50, 51), (51, 52), (53, 90), (90, 91)]);
    }

    #[test]
    fn late_slice_that_touches_the_next_gets_its_own_lane() {
        let found = reported(&[frame(0, 1, &[(70, 90)]), frame(0, 2, &[(50, 70)]), frame(0, 3, &[(20, 49)])], 1);
        assert_eq!(found.into_values().collect::<Vec<_>>(), [vec![(20, 49), (70, 90)], vec![(50, 70)]]);
    }
}
