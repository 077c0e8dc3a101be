//! A call that must have a node to itself, in every order in which the loss of nodes, the end of
//! calls, returned frames, new nodes and a cancellation can meet.
//!
//! The scheduler and the sessions are the real ones; agents begin a frame when they have no other,
//! and give back frames that they have not begun.

use std::collections::BTreeSet;

use guerdon_core::batch::Batch;
use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::frame_runner::EndedCell;
use guerdon_core::function::{FunctionId, Shape};
use guerdon_core::lane::{CloseFuture, Lane, LaneWaker};
use guerdon_core::outcome::{Cell, Status, Times};
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::{HoldingLane, function, paused, spec};
use tokio::runtime::Handle;

use super::*;
use crate::config::{RemoteConfig, RunsOn};

const SAMPLES: usize = 3;
const RAN: Times = Times { started_ns: 1, run_ns: 1 };

/// Choice at each step of an order, and the number of choices.
#[derive(Default)]
struct Orders {
    made: Vec<(usize, usize)>,
    at: usize,
}

impl Orders {
    fn choose(&mut self, of: usize) -> usize {
        if self.at == self.made.len() {
            self.made.push((0, of));
        }
        let (chosen, known) = self.made[self.at];
        assert_eq!(known, of, "the same steps led elsewhere");
        self.at += 1;
        chosen
    }

    /// The next order; false after the last.
    fn next(&mut self) -> bool {
        self.at = 0;
        while let Some((chosen, of)) = self.made.pop() {
            if chosen + 1 < of {
                self.made.push((chosen + 1, of));
                return true;
            }
        }
        false
    }
}

/// The remote lane without tasks.
struct ByHand(Arc<LaneState>);

impl Lane for ByHand {
    fn attach(&self, waker: LaneWaker) {
        let _ = self.0.waker.set(waker);
    }

    fn room(&self, function: FunctionId) -> usize {
        self.0.room(function)
    }

    fn parallelism(&self, function: FunctionId) -> usize {
        self.0.parallelism(function)
    }

    fn pool(&self, _: FunctionId) -> usize {
        0
    }

    fn frame_calls(&self, _: FunctionId) -> usize {
        1
    }

    fn run(&self, frame: Frame) {
        self.0.run(frame);
    }

    fn close(&self) -> CloseFuture {
        Box::pin(std::future::ready(()))
    }
}

/// A node of one worker: its session, and what that has not taken in.
struct AtNode {
    session: Session,
    inputs: mpsc::UnboundedReceiver<NodeInput>,
}

impl AtNode {
    /// The oldest frame: the agent has begun it.
    fn begun(&self) -> Option<u64> {
        self.session.frames.iter().find(|(_, sent)| sent.begun).map(|(id, _)| *id)
    }

    /// A frame that was asked back and has not begun.
    fn asked_back(&self) -> Option<u64> {
        self.session.frames.iter().find(|(_, sent)| sent.asked_back && !sent.begun).map(|(id, _)| *id)
    }

    fn begin(&mut self) {
        if self.begun().is_none()
            && let Some(id) = self.session.frames.keys().next().copied()
        {
            self.session.event(id, FrameEvent::Begun).unwrap();
        }
    }

    /// The frame ends with these events.
    fn end(&mut self, id: u64, event: FrameEvent) {
        self.session.event(id, event).unwrap();
        self.session.event(id, FrameEvent::Ended).unwrap();
        self.begin();
    }
}

/// Possible event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    TakeIn(usize),
    Complete(usize),
    GiveBack(usize),
    Lose(usize),
    Tick(usize),
    Come,
    Cancel,
}

/// Bounds of events that need not happen.
#[derive(Clone, Copy)]
struct Limits {
    losses: usize,
    ticks: usize,
    come: usize,
    cancels: usize,
}

struct Model {
    scheduler: Scheduler,
    state: Arc<LaneState>,
    /// The frames that run in this process while there is no node, until the model ends them.
    local: Arc<HoldingLane>,
    batch: Arc<Batch>,
    nodes: Vec<Option<AtNode>>,
    /// Calls that had the node to themselves that was lost.
    guilty: BTreeSet<usize>,
    cancelled: bool,
    /// Number of nodes kept after the last step.
    kept: usize,
}

impl Model {
    fn new(nodes: usize, runs_on: RunsOn) -> Self {
        let (functions, clock, runtime) = (vec![function("f", Shape::Sample)], Clock::start(), Handle::current());
        let local = HoldingLane::new(SAMPLES, 1);
        let of_lane = local.clone();
        let mut config = RemoteConfig::new([0; 32], 1, Box::new(move || of_lane.clone()));
        config.runs_on = vec![runs_on];
        let state = Arc::new(LaneState::new(runtime.clone(), clock, &functions, config));
        let lane: Arc<dyn Lane> = Arc::new(ByHand(state.clone()));
        let scheduler = Scheduler::start(&runtime, clock, functions, vec![lane]);
        let mut nodes_made = Vec::new();
        for _ in 0..nodes {
            nodes_made.push(Some(Self::node(&state, nodes_made.len())));
        }
        let batch = scheduler.submit(spec(1, SAMPLES)).unwrap();
        Self { scheduler, state, local, batch, nodes: nodes_made, guilty: BTreeSet::new(), cancelled: false, kept: 0 }
    }

    /// A node that is ready.
    fn node(state: &Arc<LaneState>, number: usize) -> AtNode {
        let (node, inputs) = Node::new(&format!("n{number}"), &[RunsOn::Workers]);
        state.nodes.write().push(node.clone());
        let session = Session::new(state.clone(), node);
        session.ready(PROTOCOL, 1).unwrap();
        session.lane.look_at(&session.node);
        session.lane.wake();
        AtNode { session, inputs }
    }

    fn at(&mut self, node: usize) -> &mut AtNode {
        self.nodes[node].as_mut().unwrap()
    }

    fn steps(&self, limits: Limits) -> Vec<Step> {
        let mut steps = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(node) = node else { continue };
            let any = [
                (!node.inputs.is_empty(), Step::TakeIn(number)),
                (node.begun().is_some(), Step::Complete(number)),
                (node.asked_back().is_some(), Step::GiveBack(number)),
                (limits.losses > 0, Step::Lose(number)),
                (limits.ticks > 0 && !node.session.frames.is_empty(), Step::Tick(number)),
            ];
            steps.extend(any.into_iter().filter_map(|(may, step)| may.then_some(step)));
        }
        steps.extend((limits.come > 0).then_some(Step::Come));
        steps.extend((limits.cancels > 0 && !self.batch.is_done()).then_some(Step::Cancel));
        steps
    }

    async fn make(&mut self, step: Step) {
        match step {
            Step::TakeIn(node) => {
                let at = self.at(node);
                let input = at.inputs.try_recv().unwrap();
                at.session.act_on(input);
                at.begin();
            }
            Step::Complete(node) => {
                let at = self.at(node);
                let cells = vec![EndedCell { call: 0, cell: Cell::Value(1.0), times: RAN }];
                at.end(at.begun().unwrap(), FrameEvent::Cells(cells));
            }
            Step::GiveBack(node) => {
                let at = self.at(node);
                at.end(at.asked_back().unwrap(), FrameEvent::GivenBack(vec![0]));
            }
            Step::Lose(node) => {
                let AtNode { session, inputs } = self.nodes[node].take().unwrap();
                self.guilty.extend(session.frames.values().filter_map(NodeFrame::alone));
                session.end(SessionEnd::Lost(LinkLoss { reason: "lost".to_owned(), innocent: false }), inputs);
            }
            Step::Tick(node) => self.at(node).session.tick().map_err(|_| ()).unwrap(),
            Step::Come => {
                let node = Self::node(&self.state, self.nodes.len());
                self.nodes.push(Some(node));
            }
            Step::Cancel => {
                self.scheduler.cancel(&self.batch, "enough");
                self.cancelled = true;
            }
        }
        // Lets the scheduler and the lane work on the runtime.
        for _ in 0..8 {
            tokio::task::yield_now().await;
            let held: Vec<Frame> = std::iter::from_fn(|| self.local.take()).collect();
            for mut frame in held.into_iter().rev() {
                let spared = self.state.runs_in_agents && self.state.ledger.losses(&frame) >= crate::loss::APART_AFTER;
                assert!(!spared, "it runs in this very process, after {step:?}");
                frame.complete(0, Cell::Value(1.0), RAN);
            }
        }
        self.check(step);
    }

    /// Checks the invariants.
    fn check(&mut self, step: Step) {
        let nodes = self.state.nodes.read();
        let ready: Vec<_> = nodes.iter().filter(|node| node.state() == NodeState::Ready).collect();
        let (kept, most) = (ready.iter().filter(|node| node.kept() != NodeHold::No).count(), (ready.len() / 2).max(1));
        assert!(kept <= self.kept.max(most), "{kept} nodes of {} are kept, after {step:?}", ready.len());
        // A frame without workers here waits for the next node.
        let waits = self.state.runs_in_agents || self.state.apart.lock().is_empty();
        assert!(!ready.is_empty() || waits, "a call waits for none, after {step:?}");
        drop(nodes);
        self.kept = kept;
        for AtNode { session, inputs } in self.nodes.iter().flatten() {
            let node = &session.node;
            let apart = session.frames.values().any(NodeFrame::is_apart);
            assert!(!apart || (node.frames() == 1 && node.kept() == NodeHold::Now), "it has others, after {step:?}");
            let emptied = session.frames.values().all(|sent| sent.begun || sent.asked_back);
            assert!(node.kept() != NodeHold::Soon || !inputs.is_empty() || emptied, "others wait, after {step:?}");
        }
    }

    /// All sessions take in their orders.
    async fn take_in(&mut self) {
        for node in 0..self.nodes.len() {
            while self.nodes[node].as_ref().is_some_and(|at| !at.inputs.is_empty()) {
                self.make(Step::TakeIn(node)).await;
            }
        }
    }

    /// Everything that can end ends; a node comes, should there be none.
    async fn finish(&mut self) {
        if self.nodes.iter().all(Option::is_none) {
            self.make(Step::Come).await;
        }
        for _ in 0..20 {
            let limits = Limits { losses: 0, ticks: 0, come: 0, cancels: 0 };
            while let Some(step) = self.steps(limits).first().copied() {
                self.make(step).await;
            }
            // Time passes only for a session that has something.
            for node in 0..self.nodes.len() {
                if self.nodes[node].as_ref().is_some_and(|at| !at.session.frames.is_empty()) {
                    self.make(Step::Tick(node)).await;
                }
            }
        }
        assert!(self.batch.is_done(), "a call is lost");
        assert!(self.state.apart.lock().is_empty());
        for node in self.state.nodes.read().iter().filter(|node| node.state() == NodeState::Ready) {
            assert_eq!((node.frames(), node.kept()), (0, NodeHold::No), "a node stays kept");
        }
        for sample in 0..SAMPLES {
            let status = self.batch.cell(sample, 0).unwrap().outcome.status;
            let wanted = if self.guilty.contains(&sample) { Status::Crashed } else { Status::Ok };
            assert!(status == wanted || (self.cancelled && status == Status::Cancelled), "{sample}: {status:?}");
        }
    }
}

/// One node was lost under each of the first `suspects` calls, and all run on nodes that
/// are left.
async fn suspects(runs_on: RunsOn, suspects: usize, nodes: usize) -> Model {
    let mut model = Model::new(suspects + nodes, runs_on);
    model.take_in().await;
    for node in 0..suspects {
        model.make(Step::Lose(node)).await;
        model.take_in().await;
    }
    model
}

/// Runs all orders; how many there are, and in how many a call had a node to itself.
fn explore(runs_on: RunsOn, calls: usize, nodes: usize, limits: Limits, depth: usize) -> (usize, usize) {
    let (mut orders, mut count, mut apart) = (Orders::default(), 0, 0);
    loop {
        paused(async {
            let mut model = suspects(runs_on, calls, nodes).await;
            let (mut limits, mut was_apart) = (limits, false);
            for _ in 0..depth {
                let steps = model.steps(limits);
                if steps.is_empty() {
                    break;
                }
                let step = steps[orders.choose(steps.len())];
                match step {
                    Step::Lose(_) => limits.losses -= 1,
                    Step::Tick(_) => limits.ticks -= 1,
                    Step::Come => limits.come -= 1,
                    Step::Cancel => limits.cancels -= 1,
                    _ => {}
                }
                model.make(step).await;
                was_apart |= model.nodes.iter().flatten().any(|at| at.session.node.kept() != NodeHold::No);
            }
            model.finish().await;
            model.scheduler.close().await;
            count += 1;
            apart += usize::from(was_apart);
        });
        if !orders.next() {
            return (count, apart);
        }
    }
}

#[test]
fn losses_beside_ends_and_what_is_taken_back() {
    let limits = Limits { losses: 2, ticks: 1, come: 0, cancels: 0 };
    let (orders, apart) = explore(RunsOn::Workers, 1, 3, limits, 7);
    println!("{orders} orders, a node was kept in {apart}");
    assert!(apart > orders / 10);
}

#[test]
fn losses_beside_nodes_that_come_and_a_cancellation() {
    let limits = Limits { losses: 2, ticks: 0, come: 1, cancels: 1 };
    let (orders, apart) = explore(RunsOn::Workers, 1, 2, limits, 6);
    println!("{orders} orders, a node was kept in {apart}");
    assert!(apart > orders / 10);
}

#[test]
fn two_calls_that_want_nodes_to_themselves() {
    let limits = Limits { losses: 2, ticks: 0, come: 1, cancels: 0 };
    let (orders, apart) = explore(RunsOn::Workers, 2, 4, limits, 5);
    println!("{orders} orders, a node was kept in {apart}");
    assert!(apart > orders / 10);
}

#[test]
fn a_call_without_workers_here_waits_for_the_next_node() {
    let limits = Limits { losses: 3, ticks: 0, come: 1, cancels: 1 };
    let (orders, apart) = explore(RunsOn::Threads(1), 1, 2, limits, 5);
    println!("{orders} orders, a node was kept in {apart}");
    assert!(apart > orders / 10);
}
