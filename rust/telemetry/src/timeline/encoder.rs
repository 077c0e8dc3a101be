//! Encodes items as packets.
//!
//! - A segment is a separate packet sequence, whose times never decrease.
//! - A track is described before its first item in a slot, and after its parents.

use std::collections::HashSet;

use rustix::time::{ClockId, clock_gettime};

use crate::timeline::item::{Item, TrackId};
use crate::timeline::packets::{Clock, ClockSnapshot, EXPLICIT, Packet, ProcessDescriptor, TrackDescriptor};
use crate::timeline::tracks::{Track, TrackKind, Tracks};

/// The clocks, with Perfetto's numbers.
const CLOCKS: [(u32, ClockId); 3] = [(1, ClockId::Realtime), (3, ClockId::Monotonic), (BOOT, ClockId::Boottime)];
/// The clock of the packets' times.
const BOOT: u32 = 6;

/// Returns the time on one of the system's clocks.
pub(crate) fn now_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Returns the beginning of a segment: the clocks, and the tracks of its items that the slot does
/// not describe yet. Adds these tracks to `described`.
pub(crate) fn head(tracks: &Tracks, used: &[TrackId], described: &mut HashSet<TrackId>, sequence: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let clocks = CLOCKS.map(|(id, clock)| Clock { id, now_ns: now_ns(clock) }).to_vec();
    let clocks = Some(ClockSnapshot { clocks, primary: BOOT });
    Packet { clocks, sequence, ..Packet::default() }.put(&mut out);
    for track in used {
        describe(tracks, *track, described, sequence, &mut out);
    }
    out
}

fn describe(tracks: &Tracks, id: TrackId, described: &mut HashSet<TrackId>, sequence: u32, out: &mut Vec<u8>) {
    if !described.insert(id) {
        return;
    }
    let Track { uuid, parent, name, kind, rank, .. } = tracks.get(id);
    if let Some(parent) = parent {
        describe(tracks, *parent, described, sequence, out);
    }
    let track = TrackDescriptor {
        uuid: *uuid,
        name: name.clone(),
        process: match *kind {
            TrackKind::Process(pid) => Some(ProcessDescriptor { pid, name: name.clone() }),
            TrackKind::Slices | TrackKind::Counter => None,
        },
        parent: parent.map(|parent| tracks.get(parent).uuid),
        counter: (*kind == TrackKind::Counter).then_some(()),
        child_ordering: EXPLICIT,
        sibling_rank: *rank,
    };
    Packet { track: Some(track), sequence, ..Packet::default() }.put(out);
}

/// Returns the rest of a segment: its items, in the order of their times.
pub(crate) fn body(mut items: Vec<Item>, sequence: u32) -> Vec<u8> {
    items.sort_by_key(Item::order);
    let mut out = Vec::with_capacity(64 * items.len());
    for Item { at_ns, event, .. } in items {
        Packet { at_ns: Some(at_ns), sequence, event: Some(event), ..Packet::default() }.put(&mut out);
    }
    out
}
