//! A worker with false messages: whatever it sends and writes into its page, each call ends once.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::batch::Batch;
use guerdon_core::clock::Clock;
use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId, Policy, Shape};
use guerdon_core::lane::{CloseFuture, Lane, LaneWaker};
use guerdon_core::loss_ledger::LossLedger;
use guerdon_core::outcome::{Cell, Times};
use guerdon_core::scheduler::Scheduler;
use guerdon_testkit::spec;
use proptest::prelude::*;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::call_watch::CallWatch;
use crate::in_flight::{InFlightFrames, Loss};
use crate::shared_page::{CALLS, PageSnapshot};
use crate::slots::{QueuedFrame, SlotState, Slots};
use crate::wire::Parser;

const SAMPLES: usize = 12;
const GROUP: usize = 3;

/// A lane whose frames the test takes from the inboxes of its slots.
struct Trap(Slots);

impl Lane for Trap {
    fn attach(&self, _: LaneWaker) {}

    fn room(&self, function: FunctionId) -> usize {
        self.0.room(function)
    }

    fn parallelism(&self, function: FunctionId) -> usize {
        self.0.parallelism(function)
    }

    fn pool(&self, function: FunctionId) -> usize {
        self.0.pool(function)
    }

    fn frame_calls(&self, _: FunctionId) -> usize {
        5
    }

    fn run(&self, frame: Frame) {
        self.0.put(frame, 0);
    }

    fn close(&self) -> CloseFuture {
        Box::pin(std::future::ready(()))
    }
}

fn function(shape: Shape) -> Function {
    let second = Duration::from_secs(1);
    Function::new("liar", shape, Policy { grace: second, ..Policy::new(second) })
}

/// An engine, and the inboxes of its slots.
fn trapped(clock: Clock, functions: Vec<Function>) -> (Scheduler, Vec<UnboundedReceiver<QueuedFrame>>) {
    let (places, new_slots) = Slots::new(1, &functions, |_| true);
    for (slot, _) in &new_slots {
        slot.set(SlotState::Ready);
    }
    let inboxes = new_slots.into_iter().map(|(_, inbox)| inbox).collect();
    let lane = Arc::new(Trap(places));
    (Scheduler::start(&tokio::runtime::Handle::current(), clock, functions, vec![lane]), inboxes)
}

/// Behaviour of the worker.
#[derive(Clone, Debug)]
enum Lie {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Writes these words into its page, and the supervisor looks.
    Write(Vec<(usize, u64)>),
    /// The supervisor takes back the calls behind the running one.
    TakeBack,
}

/// Numbers that may mean something: claims and counts of the frames it has.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0u64..4, prop_oneof![0u64..8, Just(CALLS as u64), Just(CALLS as u64 + 1), 0xFBu64..=0xFF])
            .prop_map(|(frame, low)| frame << 8 | low),
        Just(u64::MAX),
        any::<u64>(),
    ]
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    let body = prop_oneof![
        Just(Vec::new()),
        prop::collection::vec(prop_oneof![Just(0u8), Just(255), any::<u8>()], 0..40),
        // A failure without words, cells of a group.
        Just([f64::NAN.to_le_bytes().as_slice(), &[0; 4], &[255; 4]].concat()),
        Just([(GROUP as u32).to_le_bytes().as_slice(), &[0; 9 * GROUP]].concat()),
    ];
    let call = prop_oneof![0u16..6, any::<u16>()];
    (0u8..9, any::<u8>(), call, prop_oneof![0u64..4, any::<u64>()], body).prop_map(
        |(kind, flags, call, frame, body)| {
            let mut out = (body.len() as u32).to_le_bytes().to_vec();
            out.extend_from_slice(&[kind, flags]);
            out.extend_from_slice(&call.to_le_bytes());
            out.extend_from_slice(&frame.to_le_bytes());
            out.extend_from_slice(&body);
            out
        },
    )
}

fn lies() -> impl Strategy<Value = Vec<Lie>> {
    let lie = prop_oneof![
        4 => message().prop_map(Lie::Send),
        1 => prop::collection::vec(any::<u8>(), 0..24).prop_map(Lie::Send),
        3 => prop::collection::vec((any::<usize>(), word()), 0..12).prop_map(Lie::Write),
        2 => prop::collection::vec((0usize..4, word()), 0..4).prop_map(Lie::Write),
        1 => Just(Lie::TakeBack),
    ];
    prop::collection::vec(lie, 0..20)
}

/// Lets a worker send false messages about its frames, until it is found out or has none left, and
/// kills it.
fn lie(inbox: &mut UnboundedReceiver<QueuedFrame>, lies: &[Lie], loss: impl Fn(u64) -> Loss, clock: Clock) {
    let (mut flight, mut parser, mut watch) = (InFlightFrames::default(), Parser::default(), CallWatch::default());
    let mut page = PageSnapshot::empty();
    let mut out = Vec::new();
    let mut claim = 0;
    'lies: for each in lies {
        while flight.len() < 2
            && let Ok(held) = inbox.try_recv()
        {
            assert!(flight.send(held, None, clock.now_ns(), &mut out).is_none());
        }
        match each {
            Lie::Send(bytes) => {
                parser.buffer().extend_from_slice(bytes);
                loop {
                    let Ok(message) = parser.next() else { break 'lies };
                    let Some(message) = message else { break };
                    let seen = PageSnapshot::of(page.words());
                    let Ok(news) = flight.take(message, || Some(seen), clock.now_ns()) else { break 'lies };
                    if news.ended.is_some() {
                        drop(flight.pop());
                    }
                }
            }
            Lie::Write(words) => {
                let earlier = PageSnapshot::of(page.words());
                page = PageSnapshot::of(page.words().chain(words.iter().copied()));
                flight.complete_ahead(&earlier, &page, |_| false, clock.now_ns());
                flight.complete_before(claim, &page, clock.now_ns());
                claim = page.progress();
                let hand = flight.running_claim(&page);
                let look = watch.check(clock.now_ns(), hand);
                if let Some(hand) = hand {
                    flight.is_held_up(hand.claim, look.slow);
                }
                flight.has_ended(&page);
            }
            Lie::TakeBack => flight.take_back(&page, 1),
        }
    }
    drop(flight.lose(&page, &loss(claim), &LossLedger::default(), clock.now_ns()));
}

/// Runs the frames as a worker with true messages, until the batch is done.
async fn finish(inboxes: &mut [UnboundedReceiver<QueuedFrame>], batch: &Batch) {
    for _ in 0..1000 {
        for inbox in &mut *inboxes {
            while let Ok(QueuedFrame { guard, mut frame }) = inbox.try_recv() {
                for call in 0..frame.len() {
                    let cells = vec![Cell::Value(1.0); frame.size(call)];
                    frame.complete_many(call, cells, Times { started_ns: 1, run_ns: 1 });
                }
                drop(guard);
                drop(frame);
            }
        }
        if batch.is_done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

proptest! {
    /// Fault: a worker sends and writes anything: messages cut, doubled, for others, of any kind;
    /// any words in its page (fuzzed)
    /// Sees: each call ends once; those that it had go to others when it is ended, and nothing in
    /// the trainer panics or waits
    #[test]
    fn each_call_ends_once_for_any_worker_messages(grouped: bool, expired: bool, lies in lies()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let clock = Clock::start();
            let functions = vec![function(if grouped { Shape::Group } else { Shape::Sample })];
            let (scheduler, mut inboxes) = trapped(clock, functions);
            let batch = scheduler.submit(spec(SAMPLES / GROUP, GROUP)).map_err(|error| TestCaseError::fail(error.to_string()))?;
            let loss = |claim| {
                if expired { Loss::Expired(claim, None) } else { Loss::Crashed("lied".to_owned(), None, false) }
            };
            lie(&mut inboxes[0], &lies, loss, clock);
            finish(&mut inboxes, &batch).await;
            prop_assert!(batch.is_done(), "a call was lost");
            for sample in 0..SAMPLES {
                prop_assert!(batch.cell(sample, 0).is_some());
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn a_call_that_silences_every_worker_is_tried_twice() {
    let clock = Clock::start();
    let functions = vec![function(Shape::Sample)];
    let (scheduler, mut inboxes) = trapped(clock, functions);
    let batch = scheduler.submit(spec(SAMPLES / GROUP, GROUP)).unwrap();
    let mut rounds = 0;
    while !batch.is_done() {
        for inbox in &mut inboxes {
            let Ok(held) = inbox.try_recv() else { continue };
            let (mut flight, page, why) = (InFlightFrames::default(), PageSnapshot::empty(), "said nothing");
            assert!(flight.send(held, None, clock.now_ns(), &mut Vec::new()).is_none());
            flight.blame_first(&page, why);
            let loss = Loss::Crashed(why.to_owned(), None, false);
            drop(flight.lose(&page, &loss, &LossLedger::default(), clock.now_ns()));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        rounds += 1;
        assert!(rounds < 5000, "they are given back for ever");
    }
    for sample in 0..SAMPLES {
        assert_eq!(batch.note_of(sample, 0).unwrap().reason, "the worker process said nothing");
    }
}
