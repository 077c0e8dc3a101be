//! The supervisor of one slot: starts a worker when work comes, and another after its end.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use guerdon_core::tracer::Moment;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::child::ForkedWorker;
use crate::descriptors;
use crate::lane_state::LaneState;
use crate::pool_starts::{Failure, Next};
use crate::session::{Session, SessionEnd};
use crate::slots::{QueuedFrame, Slot, SlotKind, SlotState, give_back};
use crate::zygote::Fork;

/// Time without a worker after the slot's worker made room for another pool's: longer than a worker
/// takes to end.
const MADE_ROOM: Duration = Duration::from_millis(1500);
/// Longest time between two attempts of a slot for which another pool's worker makes room.
const ROOM_IS_MADE: Duration = Duration::from_millis(100);
/// Time that a slot without a worker stays closed while another slot tries.
const STAND_BACK: Duration = Duration::from_millis(50);
/// Time between two attempts while the previous process may still take up the room.
const PREDECESSOR: Duration = Duration::from_millis(50);
/// Longest wait for its end: longer than a worker takes to end.
const PREDECESSOR_GONE: Duration = Duration::from_millis(1500);
/// Number of workers that may be lost with a zygote in a row before it counts as a failed start.
const MOST_LOST: u32 = 8;
/// Time that the suspects' zygote stays without a call: longer than a worker takes to end.
const IDLE: Duration = Duration::from_secs(10);

/// Runs until the lane closes. Frames that wait then are dropped, which gives them back.
pub(super) async fn supervise(
    shared: Arc<LaneState>,
    slot: Arc<Slot>,
    mut inbox: mpsc::UnboundedReceiver<QueuedFrame>,
) {
    let mut waiting = VecDeque::new();
    let mut starts = 0u32;
    let mut successor = None;
    let mut by_itself = false;
    // True if the previous worker left room for one, even in a narrow pool.
    let mut follows = false;
    // True while the slot's dedicated zygote runs.
    let mut awake = false;
    // Number of starts in a row during which a zygote was lost.
    let mut lost = 0;
    while !shared.is_closing() {
        if successor.is_none() && !by_itself && waiting.is_empty() {
            if slot.state() == SlotState::Closed {
                let widens = follows || slot.starts.widens(slot.index);
                slot.set(if widens { SlotState::Widens } else { SlotState::Cold });
                shared.waker.wake();
            }
            tokio::select! {
                () = shared.closed() => return,
                () = tokio::time::sleep(IDLE), if awake => {
                    awake = false;
                    shared.zygote_of(slot.kind).rest();
                    continue;
                }
                held = inbox.recv() => match held {
                    Some(held) => waiting.push_back(held),
                    None => return,
                },
            }
        }
        if slot.kind.is_of_suspects() {
            // Calls whose outcome is not needed any more need no process.
            waiting.retain(|held| (0..held.frame.len()).any(|call| held.frame.is_open(call)));
            if waiting.is_empty() && !by_itself {
                continue;
            }
            awake = slot.kind == SlotKind::OwnZygote;
        }
        slot.set(SlotState::Closed);
        by_itself = false;
        let started = tokio::select! {
            () = shared.closed() => return,
            forked = fork(&shared, &slot, successor.take(), std::mem::take(&mut follows)) => forked,
            () = let_go(&slot, &mut inbox, &mut waiting) => return,
        };
        let end = match started {
            Ok(forked) => {
                starts += 1;
                debug!(slot = slot.index, starts, kind = ?slot.kind, "worker forked");
                if starts > 1 && !slot.kind.is_single() {
                    shared.counts.restarts.fetch_add(1, Ordering::Relaxed);
                    shared.moment(Moment::WorkerRestarted, &slot, String::new);
                }
                Session::new(shared.clone(), slot.clone(), forked).serve(&mut inbox, &mut waiting).await
            }
            // Forks have stopped because the lane closes, not because the machine has no room.
            Err(_) if shared.is_closing() => return,
            Err(error) => SessionEnd::NeverReady { why: error.to_string(), died: false },
        };
        // The worker may have reported ready with its last message.
        slot.set(SlotState::Closed);
        let end = match end {
            SessionEnd::LostWithZygote if lost >= MOST_LOST => SessionEnd::NeverReady {
                why: "a worker was killed with its zygote before it was ready".to_owned(),
                died: true,
            },
            end => end,
        };
        match end {
            SessionEnd::Closing => return,
            SessionEnd::Over(fork) => {
                lost = 0;
                successor = fork;
                follows = true;
                if slot.kind == SlotKind::Pool {
                    // Other slots may have room for the frames that came before this failure.
                    give_back(&mut inbox, &mut waiting);
                    successor.get_or_insert_with(|| shared.zygote.fork());
                }
            }
            SessionEnd::LostWithZygote => {
                lost += 1;
                give_back(&mut inbox, &mut waiting);
                by_itself = slot.starts.tries_again(slot.index);
            }
            SessionEnd::MadeRoom => {
                give_back(&mut inbox, &mut waiting);
                pause(&shared, MADE_ROOM).await;
            }
            SessionEnd::NeverReady { why, died } => {
                warn!(slot = slot.index, died, "worker was never ready");
                let others = shared.slots.others_can_give_way(slot.pool);
                let failed = slot.starts.failed(slot.index, Instant::now(), Failure { why: &why, died, others });
                if let Some(workers) = failed.narrowed {
                    shared.report_narrow(slot.kind, workers, &why);
                }
                if let Some(why) = slot.starts.broken() {
                    refuse_all(&slot, &mut inbox, &mut waiting, &why);
                }
                give_back(&mut inbox, &mut waiting);
                if failed.breaks {
                    shared.waker.wake(); // calls that wait for room fail now
                }
                match failed.next {
                    // A frame that must run alone is not given to another slot.
                    Next::StandBack => pause(&shared, STAND_BACK).await,
                    Next::Widen(wait) => pause(&shared, wait).await,
                    Next::Again(wait) => {
                        let room = others.then(|| shared.request_room(slot.pool));
                        pause(&shared, if others { wait.min(ROOM_IS_MADE) } else { wait }).await;
                        drop(room);
                        by_itself = true;
                    }
                }
            }
        }
    }
}

async fn pause(shared: &LaneState, wait: Duration) {
    tokio::select! {
        () = shared.closed() => {}
        () = tokio::time::sleep(wait) => {}
    }
}

async fn fork(shared: &LaneState, slot: &Slot, asked: Option<Fork>, follows: bool) -> io::Result<ForkedWorker> {
    let until = Instant::now() + if follows { PREDECESSOR_GONE } else { Duration::ZERO };
    if let Some(asked) = asked {
        if let Ok(Ok(forked)) = asked.await {
            return Ok(forked);
        }
        // There may not have been room for two.
        tokio::time::sleep(PREDECESSOR).await;
    }
    loop {
        match fork_now(shared, slot).await {
            Err(_) if Instant::now() < until => tokio::time::sleep(PREDECESSOR).await,
            forked => return forked,
        }
    }
}

async fn fork_now(shared: &LaneState, slot: &Slot) -> io::Result<ForkedWorker> {
    // The first worker of a pool may use the last descriptors; the trainer needs some more than
    // further workers do.
    if slot.starts.has_process() {
        descriptors::keep_some()?;
    }
    let zygote = shared.zygote_of(slot.kind);
    let asked = if slot.kind == SlotKind::OwnLoader { zygote.fork_apart() } else { zygote.fork() };
    asked.await.unwrap_or_else(|_| Err(io::Error::other("the zygote's supervisor has ended")))
}

/// Gives back the frames that wait for the worker, whenever another worker could run one.
async fn let_go(slot: &Slot, inbox: &mut mpsc::UnboundedReceiver<QueuedFrame>, waiting: &mut VecDeque<QueuedFrame>) {
    loop {
        slot.nudge.notified().await;
        give_back(inbox, waiting);
    }
}

fn refuse_all(
    slot: &Slot,
    inbox: &mut mpsc::UnboundedReceiver<QueuedFrame>,
    waiting: &mut VecDeque<QueuedFrame>,
    why: &str,
) {
    while let Ok(held) = inbox.try_recv() {
        waiting.push_back(held);
    }
    for QueuedFrame { guard, frame } in waiting.drain(..) {
        drop(guard);
        LaneState::refuse(frame, why.to_owned(), slot.kind.is_of_suspects());
    }
}
