use std::sync::Arc;
use std::time::Duration;

use guerdon_core::clock::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::Notify;

use super::{beside, explore, function};
use crate::asyncio_lane::{EventLoop, LoopFunction, LoopQueue, Next};
use crate::frame::Timeouts;
use crate::supervisor::SupervisorQueue;
use crate::tests::fake_frame::FakeFrame;

type Loop = Arc<EventLoop<FakeFrame>>;

fn event_loop(timeouts: Timeouts) -> Loop {
    let (supervisor, ended) = (Arc::new(SupervisorQueue::default()), Arc::new(Notify::new()));
    let function = LoopFunction { timeouts, ..LoopFunction::new(&function(1).policy) };
    Arc::new(EventLoop::new(0, "loop".to_owned(), Clock::start(), Arc::new([function]), supervisor, ended))
}

fn forever() -> Timeouts {
    Timeouts::from(&function(1).policy)
}

/// A loop that runs this frame and its first call started.
fn started(timeouts: Timeouts, frame: &FakeFrame) -> (Loop, LoopQueue<FakeFrame>) {
    let owner = event_loop(timeouts);
    owner.push(frame.clone());
    let queue = LoopQueue::new(owner.clone(), 1).unwrap();
    (owner, queue)
}

fn nothing_left(owner: &Loop, frame: &FakeFrame) {
    assert!(frame.is_dropped(), "the frame is kept");
    assert!(owner.in_flight(1).is_empty(), "the loop keeps what is over");
    assert!(!owner.is_busy());
}

/// Runs a frame's calls, the first of which has begun.
fn run(frame: &crate::asyncio_lane::LoopFrame<FakeFrame>, mut next: Next) {
    loop {
        next = match next {
            Next::Call { index, .. } => frame.end(index, None, |frame, _| frame.complete(index)),
            Next::Turn { .. } => frame.start(),
            Next::Nothing => return,
        };
    }
}

/// A call ends on its loop while the watchdog ends it for its time: one outcome, and the loop
/// forgets it once it has been overdue.
#[test]
fn a_call_that_ends_beside_the_watchdog() {
    explore(|| {
        let frame = FakeFrame::new(2);
        let (owner, queue) = started(forever(), &frame);
        let (watched, sees) = (owner.clone(), frame.clone());
        let runs = move || {
            let calls = queue.take().unwrap();
            let next = calls.start();
            run(&calls, next);
            for overdue in queue.overdue() {
                assert!(overdue.ended && sees.ends()[overdue.call].starts_with("no answer"));
            }
            queue
        };
        let (sent, received) = std::sync::mpsc::channel();
        beside(vec![
            Box::new(move || sent.send(runs()).unwrap()),
            Box::new(move || {
                watched.check(u64::MAX);
            }),
        ]);
        drop(received.recv().unwrap().overdue()); // what the watchdog ended last
        for end in frame.ends() {
            assert!(end == "completed" || end == "given back" || end.starts_with("no answer"), "{end}");
        }
        nothing_left(&owner, &frame);
    });
}

/// A loop ends with calls in flight, while the watchdog looks at them: each ends once, nothing is
/// kept.
#[test]
fn a_loop_that_ends_beside_the_watchdog() {
    explore(|| {
        let frame = FakeFrame::new(2);
        let (owner, queue) = started(forever(), &frame);
        let calls = queue.take().unwrap();
        assert!(matches!(calls.start(), Next::Call { index: 0, .. }));
        let watched = owner.clone();
        beside(vec![
            Box::new(move || {
                queue.ended();
                drop(calls);
            }),
            Box::new(move || {
                watched.check(u64::MAX);
            }),
        ]);
        assert!(!frame.ends()[0].is_empty());
        assert!(owner.in_flight(1).is_empty() && frame.is_dropped());
    });
}

/// A call is cancelled by its loop while the watchdog passes its grace: it is reported once as
/// cancelled, and once as ended at most.
#[test]
fn a_cancellation_beside_the_watchdog() {
    explore(|| {
        let frame = FakeFrame::new(1);
        let (owner, queue) = started(Timeouts::of(Duration::ZERO, Duration::ZERO, Duration::MAX), &frame);
        let calls = queue.take().unwrap();
        calls.start();
        let watched = owner.clone();
        let (sent, received) = std::sync::mpsc::channel();
        beside(vec![
            Box::new(move || {
                let overdue = queue.overdue();
                sent.send((queue, overdue)).unwrap();
            }),
            Box::new(move || {
                watched.check(u64::MAX);
            }),
        ]);
        let (queue, mut overdue) = received.recv().unwrap();
        overdue.extend(queue.overdue());
        let ended = overdue.iter().filter(|overdue| overdue.ended).count();
        assert!(ended == 1 && overdue.len() - ended <= 1, "{overdue:?}");
        assert!(frame.ends()[0].starts_with("no answer"));
        nothing_left(&owner, &frame);
    });
}

/// Frames come while the loop looks for them: none waits without a wake-up.
#[test]
fn no_frame_waits_without_a_wake_up() {
    explore(|| {
        let owner = event_loop(forever());
        owner.push(FakeFrame::new(1));
        let queue = LoopQueue::new(owner.clone(), 1).unwrap();
        let source = owner.clone();
        let (sent, received) = std::sync::mpsc::channel();
        beside(vec![
            Box::new(move || {
                queue.drain();
                let mut taken = 0;
                while let Some(calls) = queue.take() {
                    let next = calls.start();
                    run(&calls, next);
                    taken += 1;
                }
                sent.send((queue, taken)).unwrap();
            }),
            Box::new(move || {
                source.push(FakeFrame::new(1));
                source.push(FakeFrame::new(1));
            }),
        ]);
        let (queue, taken) = received.recv().unwrap();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let readable = poll(&mut [PollFd::new(&queue.fd(), PollFlags::IN)], Some(&now)).unwrap() == 1;
        assert!(readable || taken == 3, "{taken} frames were taken, and nothing wakes the loop");
        assert!(readable || !owner.is_busy());
    });
}
