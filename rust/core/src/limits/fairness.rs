//! Whose turn it is among engines that share a limit: arithmetic on their leases.
//!
//! - An engine with its fair share of the calls in flight yields to one without, and waits.
//! - If there are more engines than calls that may be in flight, they take turns of `TURN_NS`, or
//!   of one call that takes longer.
//! - At a rate, an engine that was served more often yields for `GRACE_NS` to a waiting one: this
//!   is shorter than the time by which a rate limiter lets calls go early, so that nothing of the
//!   rate is lost.
//! - A waiting engine renews its claim again and again: one that has crashed is not waited for.

use super::lease::Lease;

/// Time that an engine counts as waiting after its claim.
pub(super) const WAITS_NS: u64 = 300_000_000;
pub(super) const SAY_AGAIN_NS: u64 = 150_000_000;
const GRACE_NS: u64 = 15_000_000;

/// Returns whether the engine of `leases[me]`, which has `in_flight` of `most` calls, is to leave
/// the next one to another.
pub(super) fn yields_place(leases: &[Lease], me: usize, in_flight: usize, most: usize, now_ns: u64) -> bool {
    let others = || leases.iter().enumerate().filter(|(slot, lease)| *slot != me && !lease.is_empty());
    let active = 1 + others().filter(|(_, lease)| lease.in_flight > 0 || lease.waits(now_ns)).count();
    let share = (most / active).max(1);
    in_flight >= share && others().any(|(_, lease)| lease.waits(now_ns) && lease.in_flight < share as u64)
}

/// Time that an engine keeps its places while others wait without any: who waits looks every 10 ms,
/// which a turn must be worth.
pub(super) const TURN_NS: u64 = 100_000_000;

/// Returns the engine whose turn it is when fewer calls may be in flight than there are engines:
/// how often the engine was served that waits without any in flight and was served least. An engine
/// owes nothing for what others were served more.
pub(super) fn least_served(leases: &[Lease], me: usize, most: usize, now_ns: u64) -> Option<u64> {
    let others = || leases.iter().enumerate().filter(|(slot, lease)| *slot != me && !lease.is_empty());
    let active = 1 + others().filter(|(_, lease)| lease.in_flight > 0 || lease.waits(now_ns)).count();
    let waiting = others().filter(|(_, lease)| lease.in_flight == 0 && lease.waits(now_ns));
    waiting.map(|(_, lease)| lease.served).min().filter(|_| active > most)
}

/// Returns the time until which the engine of `leases[me]` leaves a call that the rate lets through
/// since `due_ns` to another.
pub(super) fn yields_turn_until(leases: &[Lease], me: usize, due_ns: u64, now_ns: u64) -> Option<u64> {
    let served = leases[me].served;
    let others = leases.iter().enumerate().filter(|(slot, lease)| *slot != me && !lease.is_empty());
    let behind = others.into_iter().any(|(_, lease)| lease.waits(now_ns) && lease.served < served);
    let until_ns = due_ns.saturating_add(GRACE_NS);
    (behind && now_ns < until_ns).then_some(until_ns)
}

/// Returns the number of calls that an engine counts as served when it comes, or comes back: no
/// more is owed to it than to those that wait.
pub(super) fn served_so_far(leases: &[Lease], me: usize, now_ns: u64) -> u64 {
    let others = leases.iter().enumerate().filter(|(slot, lease)| *slot != me && !lease.is_empty());
    let waiting = others.filter(|(_, lease)| lease.waits(now_ns) || lease.in_flight > 0);
    waiting.map(|(_, lease)| lease.served).min().unwrap_or(0).max(leases[me].served)
}
