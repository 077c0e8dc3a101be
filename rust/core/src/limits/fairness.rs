//! Turns of the engines that share a limit: arithmetic on their leases.
//!
//! - An engine with its fair share of the calls in flight waits if another waits with less.
//! - If there are more engines than calls that may be in flight, the engines take turns of
//!   `TURN_NS`, or of one call if that takes longer.
//! - If calls wait for a rate, an engine that was served more often yields to a waiting one for
//!   `GRACE_NS`. No part of the rate is lost, because a rate limiter allows calls to go early by
//!   more than this time.
//! - A waiting engine renews its claim repeatedly: one that has crashed is not waited for.

use super::lease::Lease;

/// Time that an engine counts as waiting after its claim.
pub(super) const WAITS_NS: u64 = 300_000_000;
pub(super) const SAY_AGAIN_NS: u64 = 150_000_000;
const GRACE_NS: u64 = 15_000_000;

/// Returns whether the engine of `leases[me]`, which has `in_flight` of `most` calls, must leave
/// the next one to another.
pub(super) fn yields_place(leases: &[Lease], me: usize, in_flight: usize, most: usize, now_ns: u64) -> bool {
    let others = || leases.iter().enumerate().filter(|(slot, lease)| *slot != me && !lease.is_empty());
    let active = 1 + others().filter(|(_, lease)| lease.in_flight > 0 || lease.waits(now_ns)).count();
    let share = (most / active).max(1);
    in_flight >= share && others().any(|(_, lease)| lease.waits(now_ns) && lease.in_flight < share as u64)
}

/// Length of a turn, while other engines wait without any place. Waiting engines poll every 10 ms,
/// so a turn has to be much longer.
pub(super) const TURN_NS: u64 = 100_000_000;

/// Returns how often the least served engine was served that waits with nothing in flight, if fewer
/// calls may be in flight than there are engines. That engine has the next turn.
pub(super) fn least_served(leases: &[Lease], me: usize, most: usize, now_ns: u64) -> Option<u64> {
    let others = || leases.iter().enumerate().filter(|(slot, lease)| *slot != me && !lease.is_empty());
    let active = 1 + others().filter(|(_, lease)| lease.in_flight > 0 || lease.waits(now_ns)).count();
    let waiting = others().filter(|(_, lease)| lease.in_flight == 0 && lease.waits(now_ns));
    waiting.map(|(_, lease)| lease.served).min().filter(|_| active > most)
}

/// Returns the time until which the engine of `leases[me]` leaves a call to another that the rate
/// has allowed since `due_ns`.
pub(super) fn yields_turn_until(leases: &[Lease], me: usize, due_ns: u64, now_ns: u64) -> Option<u64> {
    let served = leases[me].served;
    let others = leases.iter().enumerate().filter(|(slot, lease)| *slot != me && !lease.is_empty());
    let behind = others.into_iter().any(|(_, lease)| lease.waits(now_ns) && lease.served < served);
    let until_ns = due_ns.saturating_add(GRACE_NS);
    (behind && now_ns < until_ns).then_some(until_ns)
}

/// Returns the initial count of served calls of an engine that arrives or returns: it gets no
/// advantage over the engines that wait.
pub(super) fn served_so_far(leases: &[Lease], me: usize, now_ns: u64) -> u64 {
    let others = leases.iter().enumerate().filter(|(slot, lease)| *slot != me && !lease.is_empty());
    let waiting = others.filter(|(_, lease)| lease.waits(now_ns) || lease.in_flight > 0);
    waiting.map(|(_, lease)| lease.served).min().unwrap_or(0).max(leases[me].served)
}
