//! Slots for frames: the slots of the lane, each with at most one worker.
//!
//! - A worker starts with the first frame for which no ready one is free. A frame that waits for a
//!   start goes to a worker that is idle before.
//! - A pool worker takes two frames, so that the next one waits in its socket; one while it is
//!   slow. A pinned function has one slot and one frame at a time. Frames that must run alone go to
//!   separate slots, a fresh worker each. A frame that a zygote was lost with gets a dedicated
//!   loader there, after the second loss a dedicated zygote, for one call at a time.
//! - A place is free again before the scheduler gets the end of its frame.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use guerdon_core::frame::Frame;
use guerdon_core::function::{Function, FunctionId};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use crate::open_slots::{OpenSlots, Openness};
use crate::pool_starts::PoolStarts;

/// The most frames of a pool worker.
pub(super) const DEPTH: usize = 2;

/// Pools of frames that must run alone, with a dedicated loader, and with a dedicated zygote; the
/// pools of pinned functions follow.
const ALONE: usize = 1;
const OWN_LOADER: usize = 2;
const OWN_ZYGOTE: usize = 3;
const PINNED: usize = 4;

/// Purpose of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotKind {
    Pool,
    Pinned,
    Alone,
    /// Alone, in the only worker of a loader.
    OwnLoader,
    /// Alone, in the only worker of a zygote.
    OwnZygote,
}

impl SlotKind {
    /// Returns whether its workers get one frame each.
    pub(super) const fn is_single(self) -> bool {
        matches!(self, Self::Alone | Self::OwnLoader | Self::OwnZygote)
    }

    /// Returns whether it is for calls that a zygote was lost with.
    pub(super) const fn is_of_suspects(self) -> bool {
        matches!(self, Self::OwnLoader | Self::OwnZygote)
    }
}

/// State of a slot's worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum SlotState {
    /// No worker; a frame starts one unless the pool is narrow.
    Cold,
    /// No worker; a frame starts one, as a replacement or to test whether the pool can widen.
    Widens,
    /// It takes no frames now: its worker is starting, is its last, or has to end first.
    Closed,
    /// A worker that has reported ready.
    Ready,
}

impl SlotState {
    const fn of(number: u8) -> Self {
        match number {
            0 => Self::Cold,
            1 => Self::Widens,
            2 => Self::Closed,
            _ => Self::Ready,
        }
    }
}

/// One slot.
pub(super) struct Slot {
    pub kind: SlotKind,
    /// Its number among all slots, and the number of its pool.
    pub index: usize,
    pub pool: usize,
    /// Shared by the slots of the pool.
    pub starts: Arc<PoolStarts>,
    /// Shared by the slots of its list, with its position there.
    open: Arc<OpenSlots>,
    place: usize,
    /// The set of `open` that has the slot. Written by `publish`.
    published: Mutex<Option<Openness>>,
    /// Written by the slot's supervisor.
    state: AtomicU8,
    /// True while its worker's call is slow. Written by the slot's supervisor.
    stalled: AtomicBool,
    /// Number of frames given to the slot that have not ended. Written by `SlotGuard`.
    load: AtomicUsize,
    /// Wakes the slot, to send its waiting frames to an idle worker, or to let a ready worker make
    /// room.
    pub nudge: Notify,
    inbox: mpsc::UnboundedSender<QueuedFrame>,
}

/// A frame with its place.
pub(super) struct QueuedFrame {
    // Dropped in this order: the scheduler searches for room once, when the frame is dropped.
    pub guard: SlotGuard,
    pub frame: Frame,
}

/// A place in a slot; free when dropped.
pub(super) struct SlotGuard(Arc<Slot>);

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.0.load.fetch_sub(1, Ordering::AcqRel);
        self.0.publish();
    }
}

impl Slot {
    pub(super) fn state(&self) -> SlotState {
        SlotState::of(self.state.load(Ordering::Acquire))
    }

    /// Sets the state, and returns the former one.
    pub(super) fn set(&self, state: SlotState) -> SlotState {
        let before = SlotState::of(self.state.swap(state as u8, Ordering::AcqRel));
        match (before == SlotState::Closed, state == SlotState::Closed) {
            (false, true) => {
                self.starts.slots_starting.fetch_add(1, Ordering::AcqRel);
            }
            (true, false) => {
                self.starts.slots_starting.fetch_sub(1, Ordering::AcqRel);
            }
            _ => {}
        }
        self.publish();
        before
    }

    /// Sets whether the running call is slow.
    pub(super) fn set_stalled(&self, stalled: bool) {
        if self.stalled.swap(stalled, Ordering::AcqRel) != stalled {
            self.publish();
        }
    }

    /// Updates the pool's sets after any change of what the slot takes.
    fn publish(&self) {
        let mut published = self.published.lock();
        let openness = self.openness();
        if *published != openness {
            self.open.move_slot(self.place, *published, openness);
            *published = openness;
        }
    }

    /// Returns its capacity for another frame; `None` if it takes none.
    fn openness(&self) -> Option<Openness> {
        if self.inbox.is_closed() {
            return None; // its supervisor has ended
        }
        match (self.state(), self.load()) {
            (SlotState::Ready, _) if self.stalled.load(Ordering::Acquire) => None,
            (SlotState::Ready, 0) => Some(Openness::Idle),
            (SlotState::Ready, load) if load < self.depth() => Some(Openness::Busy),
            (SlotState::Cold, 0) => Some(Openness::Cold),
            (SlotState::Widens, 0) => Some(Openness::Widens),
            _ => None,
        }
    }

    /// The most frames that its worker may have at a time.
    pub(super) const fn depth(&self) -> usize {
        match self.kind {
            SlotKind::Pool => DEPTH,
            _ => 1,
        }
    }

    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Acquire)
    }

    /// Number of frames that the slots of its list take now.
    fn room_of_all(&self) -> usize {
        let count = |openness| self.open.count(openness);
        let cold = if self.starts.is_narrow() { 0 } else { count(Openness::Cold) };
        count(Openness::Idle) * self.depth() + count(Openness::Busy) + count(Openness::Widens) + cold
    }

    /// The position in its list of the slot where a frame runs soonest, if there is room: with an
    /// idle worker, with a worker to be started, with a busy worker.
    fn best_of_all(&self) -> Option<usize> {
        let first = |openness| self.open.first(openness);
        let cold = || first(Openness::Cold).filter(|_| !self.starts.is_narrow());
        let started = || cold().into_iter().chain(first(Openness::Widens)).min();
        first(Openness::Idle).or_else(started).or_else(|| first(Openness::Busy))
    }

    /// Gives a frame to the slot.
    fn put(self: &Arc<Self>, frame: Frame) {
        self.load.fetch_add(1, Ordering::AcqRel);
        self.publish();
        // A supervisor that has ended drops the frame, which gives it back.
        let _ = self.inbox.send(QueuedFrame { guard: SlotGuard(self.clone()), frame });
    }
}

/// All slots of the lane.
pub(super) struct Slots {
    pool: Vec<Arc<Slot>>,
    alone: Vec<Arc<Slot>>,
    own_loader: Vec<Arc<Slot>>,
    own_zygote: Vec<Arc<Slot>>,
    /// Slots of pinned functions, by function.
    pinned: Vec<Option<Arc<Slot>>>,
    isolated: Vec<bool>,
    /// True if the lane has functions with a fresh worker for each call.
    pub forks_ahead: bool,
}

/// A new slot for its supervisor, with its inbox.
pub(super) type NewSlot = (Arc<Slot>, mpsc::UnboundedReceiver<QueuedFrame>);

impl Slots {
    /// Makes slots for `workers` workers and for these functions, of which `ours` run here.
    pub(super) fn new(
        workers: usize,
        functions: &[Function],
        ours: impl Fn(FunctionId) -> bool,
    ) -> (Self, Vec<NewSlot>) {
        let mut new_slots: Vec<NewSlot> = Vec::new();
        let mut new_slot = |kind, pool, starts: &Arc<PoolStarts>, open: &Arc<OpenSlots>, place| {
            let (inbox, frames) = mpsc::unbounded_channel();
            let slot = Arc::new(Slot {
                kind,
                index: new_slots.len(),
                pool,
                starts: starts.clone(),
                open: open.clone(),
                place,
                published: Mutex::new(None),
                state: AtomicU8::new(SlotState::Cold as u8),
                stalled: AtomicBool::new(false),
                load: AtomicUsize::new(0),
                nudge: Notify::new(),
                inbox,
            });
            slot.publish();
            new_slots.push((slot.clone(), frames));
            slot
        };
        let mut new_slots_of = |kind, pool, count: usize| -> Vec<Arc<Slot>> {
            let (starts, open) = (Arc::default(), Arc::new(OpenSlots::new(count)));
            (0..count).map(|place| new_slot(kind, pool, &starts, &open, place)).collect()
        };
        let pooled = |id: usize, function: &Function| ours(id) && !function.pinned && !function.isolated;
        let pool_size =
            if functions.iter().enumerate().any(|(id, function)| pooled(id, function)) { workers } else { 0 };
        let places = Self {
            pool: new_slots_of(SlotKind::Pool, 0, pool_size),
            alone: new_slots_of(SlotKind::Alone, ALONE, workers),
            pinned: functions
                .iter()
                .enumerate()
                .map(|(id, function)| {
                    let own = ours(id) && function.pinned && !function.isolated;
                    new_slots_of(SlotKind::Pinned, PINNED + id, usize::from(own)).pop()
                })
                .collect(),
            own_loader: new_slots_of(SlotKind::OwnLoader, OWN_LOADER, workers),
            own_zygote: new_slots_of(SlotKind::OwnZygote, OWN_ZYGOTE, 1),
            isolated: functions.iter().map(|function| function.isolated).collect(),
            forks_ahead: functions.iter().enumerate().any(|(id, function)| ours(id) && function.isolated),
        };
        (places, new_slots)
    }

    /// Returns the slots for a function's frames after this number of lost zygotes.
    fn slots(&self, function: FunctionId, alone: bool, losses: usize) -> &[Arc<Slot>] {
        if losses > 0 {
            if losses == 1 { &self.own_loader } else { &self.own_zygote }
        } else if alone || self.isolated[function] {
            &self.alone
        } else if let Some(slot) = &self.pinned[function] {
            std::slice::from_ref(slot)
        } else {
            &self.pool
        }
    }

    /// Number of frames that a function's slots take now. If no worker can be started, frames are
    /// taken so that their calls fail at once.
    pub(super) fn room(&self, function: FunctionId) -> usize {
        let room = self.slots(function, false, 0).first().map_or(0, |slot| slot.room_of_all());
        if room == 0 && self.broken(function, false, 0).is_some() { 1 } else { room }
    }

    /// Returns the reason why a function's frames can't run, if they can't.
    pub(super) fn broken(&self, function: FunctionId, alone: bool, losses: usize) -> Option<String> {
        self.slots(function, alone, losses).first().and_then(|slot| slot.starts.broken())
    }

    /// Returns whether a pool other than this one has workers that can make room.
    pub(super) fn others_can_give_way(&self, pool: usize) -> bool {
        let first = [&self.pool, &self.alone, &self.own_loader, &self.own_zygote].map(|slots| slots.first());
        first.into_iter().flatten().any(|slot| slot.pool != pool && slot.starts.ready_workers() > 0)
    }

    /// Wakes the workers of other pools to make room if they can.
    pub(super) fn nudge_others(&self, pool: usize) {
        let all = self.pool.iter().chain(&self.alone).chain(&self.own_loader).chain(&self.own_zygote);
        for slot in all.filter(|slot| slot.pool != pool) {
            if slot.state() == SlotState::Ready {
                slot.nudge.notify_one();
            }
        }
    }

    /// Number of a function's frames that can run at a time.
    pub(super) fn parallelism(&self, function: FunctionId) -> usize {
        self.slots(function, false, 0).len()
    }

    /// Functions with the same number share their places.
    pub(super) fn pool(&self, function: FunctionId) -> usize {
        self.slots(function, false, 0).first().map_or(0, |slot| slot.pool)
    }

    /// Puts a frame where it runs soonest. If nothing is free, a frame that must run alone waits;
    /// any other is dropped, which gives it back.
    pub(super) fn put(&self, frame: Frame, losses: usize) {
        let slots = self.slots(frame.function_id(), frame.alone(), losses);
        let best = slots.first().and_then(|slot| slot.best_of_all()).and_then(|place| slots.get(place));
        let waits = frame.alone() || losses > 0;
        let slot = best.or_else(|| slots.iter().filter(|_| waits).min_by_key(|slot| slot.load()));
        if let Some(slot) = slot {
            slot.put(frame);
        }
    }

    /// Makes a slot give back the frames that wait there for a start, because a pool worker is
    /// idle.
    pub(super) fn let_one_go(&self, idle: &Slot) {
        if idle.kind != SlotKind::Pool || idle.load() > 0 || idle.starts.slots_starting.load(Ordering::Acquire) == 0 {
            return;
        }
        if let Some(slot) = self.pool.iter().find(|slot| slot.state() == SlotState::Closed && slot.load() > 0) {
            slot.nudge.notify_one();
        }
    }
}

/// Drops the waiting frames: the scheduler gives them to other workers, or waits for room. A frame
/// that must run alone may come back here at once, and waits.
pub(super) fn give_back(inbox: &mut mpsc::UnboundedReceiver<QueuedFrame>, waiting: &mut VecDeque<QueuedFrame>) {
    let mut held = std::mem::take(waiting);
    while let Ok(frame) = inbox.try_recv() {
        held.push_back(frame);
    }
}
