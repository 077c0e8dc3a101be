use std::sync::Arc;

use guerdon_core::clock::Clock;

use super::{beside, explore, function};
use crate::supervisor::{SupervisorQueue, SupervisorRequest};
use crate::tests::fake_frame::FakeFrame;
use crate::thread_lane::{Death, ThreadFrame, ThreadPool};

type Pool = Arc<ThreadPool<FakeFrame>>;

fn pool(threads: usize) -> (Pool, Arc<SupervisorQueue>) {
    let supervisor = Arc::new(SupervisorQueue::default());
    (Arc::new(ThreadPool::new(Clock::start(), &[function(threads)], supervisor.clone())), supervisor)
}

/// Pushes a frame, and takes it as the thread that was ordered for it.
fn taken(pool: &Pool, frame: &FakeFrame) -> ThreadFrame<FakeFrame> {
    pool.push(frame.clone());
    let (taken, _) = pool.next_frame(0, 1, 1).unwrap();
    taken.end_setup();
    taken
}

/// A thread's life: all the work there is, and its end.
fn live(pool: &Pool, thread: u64) {
    while let Some((frame, _)) = pool.next_frame(0, thread, thread) {
        if frame.in_setup() {
            frame.end_setup();
        }
        let mut next = frame.start();
        let mut call = 0;
        while let Some(skipped) = next {
            call += skipped;
            next = frame.end(|frame, at, _| {
                assert_eq!(at, call);
                frame.complete(at);
            });
            call += 1;
        }
    }
    pool.leave(0, thread, None);
    pool.thread_ended();
}

/// A call ends while the watchdog finds it out of time: one of them ends it. Either its thread goes
/// on with the waiting frames, or it is abandoned, gets none, and another is started for them.
#[test]
fn a_call_that_comes_back_beside_the_watchdog() {
    explore(|| {
        let (pool, supervisor) = pool(1);
        let (frame, second) = (FakeFrame::new(2), FakeFrame::new(1));
        let thread = taken(&pool, &frame);
        thread.start();
        pool.push(second.clone());
        let (_, running) = pool.running().remove(0);
        let (watched, asks) = (pool.clone(), pool.clone());
        let (sent, received) = std::sync::mpsc::channel();
        beside(vec![
            Box::new(move || {
                while thread.end(|frame, call, _| frame.complete(call)).is_some() {}
                drop(thread);
                sent.send(asks.next_frame(0, 1, 1).is_some()).unwrap();
            }),
            Box::new(move || {
                watched.check_frame(0, &running, u64::MAX / 2);
                watched.check_frame(0, &running, u64::MAX);
            }),
        ]);
        assert!(frame.is_dropped() && pool.running().is_empty());
        let abandoned = pool.abandoned() == 1;
        assert_eq!(received.recv().unwrap(), !abandoned, "an abandoned thread gets no more work");
        assert_eq!(frame.ends().iter().any(|end| end.starts_with("no answer")), abandoned);
        let ordered = |request: &SupervisorRequest| matches!(request, SupervisorRequest::StartThread { .. });
        let orders = std::iter::from_fn(|| supervisor.try_next()).filter(ordered).count();
        assert_eq!(orders, if abandoned { 2 } else { 1 });
    });
}

/// The scheduler ends a call while its thread does: the thread goes on, or is abandoned, never
/// both.
#[test]
fn a_swept_call_beside_its_end() {
    explore(|| {
        let (pool, _) = pool(1);
        let frame = FakeFrame::new(1);
        let thread = taken(&pool, &frame);
        thread.start();
        frame.sweep(0);
        let (_, running) = pool.running().remove(0);
        let watched = pool.clone();
        let ended = Arc::new(std::sync::Mutex::new(None));
        let seen = ended.clone();
        beside(vec![
            Box::new(move || {
                let mut came = false;
                thread.end(|_, _, _| came = true);
                *seen.lock().unwrap() = Some(came);
            }),
            Box::new(move || {
                watched.check_frame(0, &running, 1);
            }),
        ]);
        assert_eq!(*ended.lock().unwrap(), Some(pool.abandoned() == 0));
        assert!(frame.is_dropped() && pool.running().is_empty());
    });
}

/// Work comes while two threads wait and the lane closes: each frame is run whole, or dropped, and
/// both end.
#[test]
fn work_beside_threads_that_wait_and_the_end() {
    explore(|| {
        let (pool, _) = pool(2);
        let frames = [(); 3].map(|()| FakeFrame::new(1));
        pool.push(frames[0].clone());
        pool.push(frames[1].clone());
        let (one, other, source, comes) = (pool.clone(), pool.clone(), pool.clone(), frames[2].clone());
        beside(vec![
            Box::new(move || live(&one, 1)),
            Box::new(move || live(&other, 2)),
            Box::new(move || {
                source.push(comes);
                source.close();
            }),
        ]);
        for frame in &frames {
            assert!(frame.is_dropped());
            assert!(["completed", ""].contains(&frame.ends()[0].as_str()));
        }
    });
}

/// A frame comes while the only thread finds nothing and goes to sleep: it is woken, or takes it at
/// once.
#[test]
fn a_frame_beside_a_thread_that_goes_to_sleep() {
    explore(|| {
        let (pool, supervisor) = pool(1);
        let first = FakeFrame::new(1);
        drop(taken(&pool, &first));
        let second = FakeFrame::new(1);
        let (comes, waiter, source) = (second.clone(), pool.clone(), pool.clone());
        beside(vec![
            Box::new(move || {
                let (frame, _) = waiter.next_frame(0, 1, 1).unwrap();
                frame.start();
                assert_eq!(frame.end(|frame, call, _| frame.complete(call)), None);
            }),
            Box::new(move || source.push(comes)),
        ]);
        assert_eq!(second.ends(), ["completed"]);
        let ordered = |request: &SupervisorRequest| matches!(request, SupervisorRequest::StartThread { .. });
        let orders = std::iter::from_fn(|| supervisor.try_next()).filter(ordered).count();
        assert_eq!(orders, 1, "the thread that is there is enough");
    });
}

/// A thread dies in a call while the watchdog finds it out of time and work comes: the call ends
/// once, and another thread is ordered for the waiting frames.
#[test]
fn a_thread_that_dies_beside_the_watchdog_and_work() {
    explore(|| {
        let (pool, supervisor) = pool(1);
        let (frame, second) = (FakeFrame::new(1), FakeFrame::new(1));
        let thread = taken(&pool, &frame);
        thread.start();
        let (_, running) = pool.running().remove(0);
        let (dies, watched, source, comes) = (pool.clone(), pool.clone(), pool.clone(), second.clone());
        beside(vec![
            Box::new(move || {
                assert!(!dies.leave(0, 1, Some(Death { reason: "died", traceback: None })));
                drop(thread);
                dies.thread_ended();
            }),
            Box::new(move || {
                watched.check_frame(0, &running, u64::MAX / 2);
                watched.check_frame(0, &running, u64::MAX);
            }),
            Box::new(move || source.push(comes)),
        ]);
        assert!(frame.is_dropped() && pool.running().is_empty() && pool.abandoned() == 0);
        assert!(frame.ends()[0] == "died" || frame.ends()[0].starts_with("no answer"));
        let (next, _) = pool.next_frame(0, 2, 2).unwrap();
        next.end_setup();
        next.start();
        assert_eq!(next.end(|frame, call, _| frame.complete(call)), None);
        assert_eq!(second.ends(), ["completed"]);
        let ordered = |request: &SupervisorRequest| matches!(request, SupervisorRequest::StartThread { .. });
        assert_eq!(std::iter::from_fn(|| supervisor.try_next()).filter(ordered).count(), 2);
    });
}

/// A thread dies while a frame comes that it was to be woken for: another is ordered.
#[test]
fn a_frame_beside_a_waiting_thread_that_dies() {
    explore(|| {
        let (pool, supervisor) = pool(1);
        drop(taken(&pool, &FakeFrame::new(1)));
        let second = FakeFrame::new(1);
        let (comes, dies, source) = (second.clone(), pool.clone(), pool.clone());
        beside(vec![
            Box::new(move || {
                dies.leave(0, 1, Some(Death { reason: "died", traceback: None }));
                dies.thread_ended();
            }),
            Box::new(move || source.push(comes)),
        ]);
        assert!(pool.next_frame(0, 2, 2).is_some());
        let ordered = |request: &SupervisorRequest| matches!(request, SupervisorRequest::StartThread { .. });
        assert_eq!(std::iter::from_fn(|| supervisor.try_next()).filter(ordered).count(), 2);
    });
}
