//! A frame from elsewhere: taking back beside completion beside the loss of its driver.

use std::sync::Arc;

use super::batch::{Nothing, function};
use super::scheduler::{Holding, RAN, failure};
use super::{beside, explore_within};
use crate::call::CallKind;
use crate::clock::Clock;
use crate::frame_runner::{FrameEvent, FrameListener, FrameRunner, HostedFrame};
use crate::lane::Lane;
use crate::outcome::{Cell, FailureKind};
use crate::sync::Mutex;

/// Reports, in order.
#[derive(Default)]
struct Reports(Mutex<Vec<FrameEvent>>);

impl FrameListener for Reports {
    fn tell(&self, _: u64, _: u64, event: FrameEvent) {
        self.0.lock().push(event);
    }
}

struct RunnerModel {
    lane: Arc<Holding>,
    runner: FrameRunner,
    reports: Arc<Reports>,
    _runtime: tokio::runtime::Runtime,
}

impl RunnerModel {
    /// A frame of `calls` calls, which the lane takes one at a time.
    fn new(calls: usize) -> Arc<Self> {
        let (lane, reports) = (Arc::new(Holding::new(1, 1)), Arc::<Reports>::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let lanes: Vec<Arc<dyn Lane>> = vec![lane.clone()];
        let functions = vec![function(0, false)];
        let runner = FrameRunner::start(runtime.handle(), Clock::start(), functions, lanes, reports.clone());
        let frame = HostedFrame {
            session: 1,
            id: 1,
            function: 0,
            kind: CallKind::Sample,
            calls,
            samples: 1,
            alone: false,
            suspect: false,
            payload: Box::new(Nothing),
            scores: Vec::new(),
        };
        runner.submit(frame).unwrap();
        Arc::new(Self { lane, runner, reports, _runtime: runtime })
    }

    /// Completes the lane's calls.
    fn complete(&self) {
        if let Some(mut frame) = self.lane.take() {
            frame.complete(0, Cell::Value(1.0), RAN);
        }
    }

    /// Returns the number of reports of each call, once all calls of the lane have ended.
    fn reported(&self, calls: usize) -> Vec<usize> {
        while let Some(mut frame) = self.lane.take() {
            frame.complete(0, Cell::Value(1.0), RAN);
        }
        assert_eq!(self.runner.frames(), 0, "a frame never ends");
        let reports = self.reports.0.lock();
        assert_eq!(reports.iter().filter(|event| **event == FrameEvent::Ended).count(), 1);
        assert_eq!(reports.last(), Some(&FrameEvent::Ended), "the end comes last");
        let mut counts = vec![0; calls];
        for event in reports.iter() {
            match event {
                FrameEvent::Cells(cells) => cells.iter().for_each(|cell| counts[cell.call] += 1),
                FrameEvent::GivenBack(calls) => calls.iter().for_each(|call| counts[*call] += 1),
                FrameEvent::Failed { call, .. } => counts[*call] += 1,
                _ => {}
            }
        }
        counts
    }
}

#[test]
fn taking_back_beside_completion() {
    explore_within(3, || {
        let model = RunnerModel::new(2);
        let (ends, takes) = (model.clone(), model.clone());
        beside(vec![Box::new(move || ends.complete()), Box::new(move || takes.runner.take_back(1, 1))]);
        assert_eq!(model.reported(2), [1, 1]);
    });
}

#[test]
fn a_loss_beside_completion_and_taking_back() {
    explore_within(2, || {
        let model = RunnerModel::new(2);
        let (ends, takes, loses) = (model.clone(), model.clone(), model.clone());
        beside(vec![
            Box::new(move || ends.complete()),
            Box::new(move || takes.runner.take_back(1, 1)),
            Box::new(move || loses.runner.end_session(1)),
        ]);
        assert!(model.reported(2).iter().all(|count| *count <= 1));
    });
}

#[test]
fn a_sweep_beside_a_failure_and_what_a_lane_gives_back() {
    explore_within(2, || {
        let model = RunnerModel::new(2);
        let (fails, drops, sweeps) = (model.clone(), model.clone(), model.clone());
        let fail = move || {
            if let Some(mut frame) = fails.lane.take() {
                frame.fail(0, failure(FailureKind::Error), RAN);
            }
        };
        beside(vec![
            Box::new(fail),
            Box::new(move || drop(drops.lane.take())),
            Box::new(move || sweeps.runner.sweep(1, 1, &[1])),
        ]);
        let reported = model.reported(2);
        assert!(reported[0] == 1 && reported[1] <= 1, "{reported:?}");
    });
}
