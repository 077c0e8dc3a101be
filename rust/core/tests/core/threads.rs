//! Many threads and real time: batches submitted, streamed and cancelled from everywhere while
//! lanes answer in parallel.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use guerdon_core::batch::Batch;
use guerdon_core::clock::Clock;
use guerdon_core::function::{Function, Shape};
use guerdon_core::lane::Lane;
use guerdon_core::outcome::Status;
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::{Chaos, FakeLane, Room, function, instant_lane, serial, spec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

fn wait(fd: BorrowedFd<'_>) {
    let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&PATIENCE)).unwrap();
    assert_eq!(ready, 1, "no news for a minute");
}

/// Takes groups as they come until none is left, as `PendingBatch.groups()` does; counts them.
fn stream(batch: &Batch, taken: &[AtomicU64]) {
    while !batch.is_exhausted() {
        wait(batch.news().unwrap().fd());
        if let Some(group) = batch.take_group() {
            taken[group].fetch_add(1, Ordering::SeqCst);
            for sample in group * batch.group_size()..(group + 1) * batch.group_size() {
                assert!((0..batch.functions().len()).all(|id| batch.cell(sample, id).is_some()), "an open cell");
            }
        }
    }
    assert!(batch.take_group().is_none());
}

/// Two consumers and, perhaps, a cancel; when it ends every group was handed out once.
fn follow(engine: &Scheduler, batch: &Arc<Batch>, cancel_after: Option<Duration>) {
    let taken: Vec<AtomicU64> = (0..batch.groups()).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| stream(batch, &taken));
        }
        if let Some(after) = cancel_after {
            scope.spawn(move || {
                thread::sleep(after);
                engine.cancel(batch, "stop");
            });
        }
        wait(batch.end().unwrap().fd());
        assert!(batch.is_done());
    });
    assert!(taken.iter().all(|times| times.load(Ordering::SeqCst) == 1), "{taken:?}");
}

fn functions() -> Vec<Function> {
    let plain = |shape| {
        let mut function = function("f", shape);
        function.policy.timeout = Duration::from_millis(20);
        function
    };
    let mut limited = plain(Shape::Sample);
    limited.policy.concurrency = Some(2);
    let scored = Function { finish: true, ..plain(Shape::Sample) };
    let looped = Function { lane: 1, ..plain(Shape::Sample) };
    vec![
        plain(Shape::Sample),
        limited,
        scored,
        plain(Shape::Group),
        Function { lane: 1, ..plain(Shape::Batch) },
        looped,
    ]
}

#[test]
fn batches_from_many_threads_meet_many_lanes() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_time().build().unwrap();
    let chaos = Chaos { seed: 7, faults: 60, longest: Duration::from_micros(300), hangs: true };
    let functions = functions();
    let lanes: Vec<Arc<FakeLane>> = {
        let _inside = runtime.enter();
        let workers = Room { places: 6, frame_calls: 8, take_back: Duration::from_millis(5), ..Room::default() };
        let loops = Room { places: 4, at_once: true, ..Room::default() };
        [workers, loops].map(|room| Arc::new(FakeLane::new(room, chaos.clone()))).to_vec()
    };
    let as_lanes = lanes.iter().map(|lane| lane.clone() as Arc<dyn Lane>).collect();
    let engine = Scheduler::start(runtime.handle(), Clock::start(), functions.clone(), as_lanes);
    thread::scope(|scope| {
        for submitter in 0..4_u64 {
            let (engine, functions, chaos) = (&engine, &functions, &chaos);
            scope.spawn(move || {
                for round in 0..6 {
                    let cancel = (round % 3 == 2).then(|| Duration::from_millis(submitter * 3));
                    let batch = engine.submit(spec(24, 4)).unwrap();
                    follow(engine, &batch, cancel);
                    check(functions, &batch, chaos, cancel.is_some());
                }
            });
        }
    });
    runtime.block_on(engine.close());
    assert!(lanes.iter().all(|lane| lane.held() == 0));
    assert_eq!(engine.open_batches(), 0);
    for (id, function) in functions.iter().enumerate() {
        assert!(lanes[function.lane].log().peak(id) <= function.policy.concurrency.unwrap_or(usize::MAX));
    }
}

fn check(functions: &[Function], batch: &Batch, chaos: &Chaos, cancelled: bool) {
    let expected = serial(functions, batch.id(), batch.samples(), batch.group_size(), chaos);
    for (sample, row) in expected.iter().enumerate() {
        for (id, expected) in row.iter().enumerate() {
            let cell = batch.cell(sample, id).expect("the cell is complete");
            assert_eq!(batch.note_of(sample, id).is_some(), cell.outcome.status.is_failure());
            if !cancelled || cell.outcome.status != Status::Cancelled {
                let seen = (cell.outcome.status, cell.outcome.value.to_bits(), cell.attempts);
                assert_eq!(seen, (expected.status, expected.value.to_bits(), expected.attempts), "{sample}, {id}");
            }
        }
    }
}

#[test]
fn submitters_that_hand_out_for_each_other_leave_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let functions = vec![function("f", Shape::Sample), function("g", Shape::Group)];
    let lanes: Vec<Arc<dyn Lane>> = vec![Arc::new(instant_lane(3))];
    let engine = Scheduler::start(runtime.handle(), Clock::start(), functions, lanes);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let batch = engine.submit(spec(5, 3)).unwrap();
                    wait(batch.end().unwrap().fd());
                    assert!((0..15).all(|sample| batch.shown(sample, 0) == (sample as f32, Status::Ok)));
                }
            });
        }
    });
    assert_eq!(engine.open_batches(), 0);
    runtime.block_on(engine.close());
}
