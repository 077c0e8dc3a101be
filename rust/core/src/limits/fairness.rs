//! Whose turn it is among engines that share a limit: arithmetic on their leases.
//!
//! - Who has its fair share of the calls in flight yields to who has not and waits.
//! - Where engines are more than calls that may be in flight, they take turns of `TURN_NS`, or of
//!   one call that takes longer.
//! - Of a rate, who was served more often yields for `GRACE_NS` to who waits: less than a rate
//!   limiter lets calls go early, so that nothing of the rate is lost.
//! - Who waits says so again and again: one that has crashed is not waited for.

use super::lease::Lease;

/// For how long an engine is known to wait after it said so, and how soon it says so again.
pub(super) const WAITS_NS: u64 = 300_000_000;
pub(super) const SAY_AGAIN_NS: u64 = 150_000_000;
const GRACE_NS: u64 = 15_000_000;

/// Whether the engine of `leases[me]`, which has `in_flight` of `most` calls, is to leave the next
/// one to another.
pub(super) fn yields_place(leases: &[Lease], me: usize, in_flight: usize, most: usize, now_ns: u64) -> bool {
    let others = || leases.iter().enumerate().filter(|(slot, lease)| *slot != me && !lease.is_empty());
    let active = 1 + others().filter(|(_, lease)| lease.in_flight > 0 || lease.waits(now_ns)).count();
    let share = (most / active).max(1);
    in_flight >= share && others().any(|(_, lease)| lease.waits(now_ns) && lease.in_flight < share as u64)
}

/// For how long an engine keeps the places that it has where others wait without any: who waits
/// looks every 10 ms, which a turn must be worth.
pub(super) const TURN_NS: u64 = 100_000_000;

/// Where fewer calls may be in flight than there are engines: how often the engine was served that
/// waits without any in flight and was served least. What others were served more is no debt.
pub(super) fn least_served(leases: &[Lease], me: usize, most: usize, now_ns: u64) -> Option<u64> {
    let others = || leases.iter().enumerate().filter(|(slot, lease)| *slot != me && !lease.is_empty());
    let active = 1 + others().filter(|(_, lease)| lease.in_flight > 0 || lease.waits(now_ns)).count();
    let waiting = others().filter(|(_, lease)| lease.in_flight == 0 && lease.waits(now_ns));
    waiting.map(|(_, lease)| lease.served).min().filter(|_| active > most)
}

/// Until when the engine of `leases[me]` leaves a call that the rate lets through since `due_ns` to
/// another.
pub(super) fn yields_turn_until(leases: &[Lease], me: usize, due_ns: u64, now_ns: u64) -> Option<u64> {
    let served = leases[me].served;
    let others = leases.iter().enumerate().filter(|(slot, lease)| *slot != me && !lease.is_empty());
    let behind = others.into_iter().any(|(_, lease)| lease.waits(now_ns) && lease.served < served);
    let until_ns = due_ns.saturating_add(GRACE_NS);
    (behind && now_ns < until_ns).then_some(until_ns)
}

/// What an engine counts as served when it comes, or comes back: no more is owed to it than to
/// those that wait.
pub(super) fn served_so_far(leases: &[Lease], me: usize, now_ns: u64) -> u64 {
    let others = leases.iter().enumerate().filter(|(slot, lease)| *slot != me && !lease.is_empty());
    let waiting = others.filter(|(_, lease)| lease.waits(now_ns) || lease.in_flight > 0);
    waiting.map(|(_, lease)| lease.served).min().unwrap_or(0).max(leases[me].served)
}
