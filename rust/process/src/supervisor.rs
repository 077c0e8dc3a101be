//! The supervisor of one slot: gets it a worker, and another when that one has ended.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;

use crate::child::Forked;
use crate::lane_state::LaneState;
use crate::session::{Session, SessionEnd};
use crate::slots::{QueuedFrame, Slot, SlotKind};
use crate::zygote::Fork;

/// Runs until the lane closes. Frames that wait then are dropped, and so given back.
pub(super) async fn supervise(
    shared: Arc<LaneState>,
    slot: Arc<Slot>,
    mut inbox: mpsc::UnboundedReceiver<QueuedFrame>,
) {
    let mut waiting = VecDeque::new();
    let mut starts = 0u32;
    let mut successor = None;
    while !shared.is_closing() {
        if slot.kind != SlotKind::Pool && waiting.is_empty() {
            tokio::select! {
                () = shared.closed() => return,
                held = inbox.recv() => match held {
                    Some(held) => waiting.push_back(held),
                    None => return,
                },
            }
        }
        let started = tokio::select! {
            () = shared.closed() => return,
            forked = fork(&shared, successor.take()) => forked,
        };
        let end = match started {
            Ok(forked) => {
                starts += 1;
                if starts > 1 && slot.kind != SlotKind::Alone {
                    shared.counts.restarts.fetch_add(1, Ordering::Relaxed);
                }
                Session::new(shared.clone(), slot.clone(), forked).serve(&mut inbox, &mut waiting).await
            }
            Err(error) => SessionEnd::NeverReady(error.to_string()),
        };
        // A last message may have said that it is ready.
        slot.ready.store(false, Ordering::Release);
        match end {
            SessionEnd::Closing => return,
            SessionEnd::Over(fork) => successor = fork,
            SessionEnd::NeverReady(why) => {
                let wait = shared.start_failed(&why);
                if let Some(why) = shared.broken() {
                    refuse_all(&mut inbox, &mut waiting, &why);
                }
                tokio::select! {
                    () = shared.closed() => return,
                    () = tokio::time::sleep(wait) => {}
                }
            }
        }
        if slot.kind == SlotKind::Pool {
            // Others may have room for what came in while there was no worker.
            waiting.clear();
            while inbox.try_recv().is_ok() {}
        }
    }
}

async fn fork(shared: &LaneState, asked: Option<Fork>) -> io::Result<Forked> {
    asked
        .unwrap_or_else(|| shared.zygote.fork())
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the zygote's supervisor has ended")))
}

fn refuse_all(inbox: &mut mpsc::UnboundedReceiver<QueuedFrame>, waiting: &mut VecDeque<QueuedFrame>, why: &str) {
    while let Ok(held) = inbox.try_recv() {
        waiting.push_back(held);
    }
    for QueuedFrame { guard, frame } in waiting.drain(..) {
        drop(guard);
        LaneState::refuse(frame, why.to_owned());
    }
}
