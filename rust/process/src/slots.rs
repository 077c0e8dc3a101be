//! Where frames can go: the slots of the lane, each with at most one worker.
//!
//! - A pool worker takes two frames, so that the next one waits in its socket; one while it is
//!   slow.
//! - A pinned function has one slot and one frame at a time; its worker starts with its first
//!   frame.
//! - Frames that must run alone go to slots of their own, a fresh worker each.
//! - A place is free again before the scheduler learns that its frame ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId};
use tokio::sync::mpsc;

/// Frames that a pool worker holds at most.
const DEPTH: usize = 2;

/// What a slot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotKind {
    Pool,
    Pinned,
    Alone,
}

/// One slot.
pub(super) struct Slot {
    pub kind: SlotKind,
    /// A worker is there that said ready. Written by the slot's supervisor.
    pub ready: AtomicBool,
    /// What its worker has in hand is slow. Written by the slot's supervisor.
    pub stalled: AtomicBool,
    /// Frames that were given to the slot and have not ended. Written by `SlotGuard`.
    load: AtomicUsize,
    inbox: mpsc::UnboundedSender<QueuedFrame>,
}

/// A frame in its place.
pub(super) struct QueuedFrame {
    // In this order.
    pub guard: SlotGuard,
    pub frame: Frame,
}

/// A place in a slot; free when dropped.
pub(super) struct SlotGuard(Arc<Slot>);

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.0.load.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Slot {
    /// A slot, and what its supervisor takes frames from.
    fn new(kind: SlotKind) -> (Arc<Self>, mpsc::UnboundedReceiver<QueuedFrame>) {
        let (inbox, frames) = mpsc::unbounded_channel();
        let slot = Self {
            kind,
            ready: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            load: AtomicUsize::new(0),
            inbox,
        };
        (Arc::new(slot), frames)
    }

    /// Frames that its worker may hold at a time.
    pub(super) const fn depth(&self) -> usize {
        match self.kind {
            SlotKind::Pool => DEPTH,
            SlotKind::Pinned | SlotKind::Alone => 1,
        }
    }

    fn load(&self) -> usize {
        self.load.load(Ordering::Acquire)
    }

    fn room(&self) -> usize {
        if self.inbox.is_closed() {
            return 0; // its supervisor has ended
        }
        let serves = match self.kind {
            SlotKind::Pool => self.ready.load(Ordering::Acquire) && !self.stalled.load(Ordering::Acquire),
            SlotKind::Pinned | SlotKind::Alone => true,
        };
        if serves { self.depth().saturating_sub(self.load()) } else { 0 }
    }

    /// Gives a frame to the slot.
    fn put(self: &Arc<Self>, frame: Frame) {
        self.load.fetch_add(1, Ordering::AcqRel);
        // A supervisor that has ended drops it, and so gives it back.
        let _ = self.inbox.send(QueuedFrame { guard: SlotGuard(self.clone()), frame });
    }
}

/// All slots of the lane.
pub(super) struct Slots {
    pool: Vec<Arc<Slot>>,
    alone: Vec<Arc<Slot>>,
    /// By function.
    pinned: Vec<Option<Arc<Slot>>>,
    isolated: Vec<bool>,
}

/// What the supervisor of a slot starts with.
pub(super) type NewSlot = (Arc<Slot>, mpsc::UnboundedReceiver<QueuedFrame>);

impl Slots {
    /// Slots for `workers` workers and for these functions, of which `ours` run here.
    pub(super) fn new(
        workers: usize,
        functions: &[Function],
        ours: impl Fn(FunctionId) -> bool,
    ) -> (Self, Vec<NewSlot>) {
        let mut new_slots = Vec::new();
        let mut new_slot = |kind| {
            let (slot, frames) = Slot::new(kind);
            new_slots.push((slot.clone(), frames));
            slot
        };
        let pooled = |id: usize, function: &Function| ours(id) && !function.pinned && !function.isolated;
        let pool_size =
            if functions.iter().enumerate().any(|(id, function)| pooled(id, function)) { workers } else { 0 };
        let places = Self {
            pool: (0..pool_size).map(|_| new_slot(SlotKind::Pool)).collect(),
            alone: (0..workers).map(|_| new_slot(SlotKind::Alone)).collect(),
            pinned: functions
                .iter()
                .enumerate()
                .map(|(id, function)| {
                    (ours(id) && function.pinned && !function.isolated).then(|| new_slot(SlotKind::Pinned))
                })
                .collect(),
            isolated: functions.iter().map(|function| function.isolated).collect(),
        };
        (places, new_slots)
    }

    fn slots(&self, function: FunctionId, alone: bool) -> &[Arc<Slot>] {
        if alone || self.isolated[function] {
            &self.alone
        } else if let Some(slot) = &self.pinned[function] {
            std::slice::from_ref(slot)
        } else {
            &self.pool
        }
    }

    /// Frames of a function that would be taken now.
    pub(super) fn room(&self, function: FunctionId) -> usize {
        self.slots(function, false).iter().map(|slot| slot.room()).sum()
    }

    /// Frames of a function that can be at work at a time.
    pub(super) fn parallelism(&self, function: FunctionId) -> usize {
        self.slots(function, false).len()
    }

    /// Functions with the same number share their places.
    pub(super) fn pool(&self, function: FunctionId) -> usize {
        match (self.isolated[function], &self.pinned[function]) {
            (true, _) => 1,
            (false, None) => 0,
            (false, Some(_)) => 2 + function,
        }
    }

    /// Puts a frame where the least waits. Without room it is dropped, which gives it back.
    pub(super) fn put(&self, frame: Frame) {
        let slots = self.slots(frame.function_id(), frame.alone());
        let open = |slot: &&Arc<Slot>| frame.alone() || slot.room() > 0;
        if let Some(slot) = slots.iter().filter(open).min_by_key(|slot| slot.load()) {
            slot.put(frame);
        }
    }
}
