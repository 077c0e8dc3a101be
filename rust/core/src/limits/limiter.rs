//! The limiter of an endpoint: the scheduler takes a permit from it for each call.
//!
//! - Functions of one engine with the same key share a limiter; engines with the same key share its
//!   file.
//! - The end of a call is written at the next use of the file, within milliseconds; failures are
//!   written at once.
//! - A file that can't be used, or that stays locked for `LOCKED_NS`, refuses calls with a reason.
//! - A condition that users are warned of is reported once.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Deserializer};
use tracing::debug;

use super::breaker::History;
use super::feedback::{CallEnd, Feedback};
use super::rate_limiter::{Decision, Grant, Rules, Tokens};
use super::shared_file::LockedState;
use super::store::Store;
use super::warning::{LimitWarning, ThrottleWarnings};
use crate::settings::RawPath;
use crate::sync::Mutex;

/// Pause before another try when the file is locked.
const RETRY_LOCK_NS: u64 = 1_000_000;
/// Longest time that the file may stay locked: its lock is held for microseconds.
const LOCKED_NS: u64 = 60_000_000_000;
/// After a longer pause between two attempts to lock, the file may have been unlocked meanwhile.
const BREAK_NS: u64 = 1_000_000_000;
/// Interval of polling for permits that another process may release: it does not notify this one.
const POLL_OTHERS_NS: u64 = 10_000_000;
/// Interval at which a waiting engine renews its claim.
const SAY_AGAIN_NS: u64 = 100_000_000;

/// The limit of one function, as it was set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    pub rules: Rules,
    /// The endpoint, and the file of all processes that name it; without one the limit is the
    /// function's own.
    #[serde(deserialize_with = "shared_key")]
    pub key: Option<(Arc<str>, PathBuf)>,
    /// Estimated tokens of a call, until calls have reported their use.
    pub tokens: Option<f64>,
}

fn shared_key<'de, D: Deserializer<'de>>(given: D) -> Result<Option<(Arc<str>, PathBuf)>, D::Error> {
    Ok(Option::deserialize(given)?.map(|(name, RawPath(path))| (name, path)))
}

/// Result of asking for a permit.
#[derive(Debug)]
pub enum AcquireResult {
    Permit(Permit),
    /// Request again at this time; sooner if a call of this limiter has ended and `on_release`.
    Wait {
        until_ns: u64,
        on_release: bool,
    },
    /// Calls must fail, for this reason.
    Refused(String),
}

/// See the module.
#[derive(Debug)]
pub struct Limiter {
    rules: Rules,
    /// Its key and file, for messages; empty if the limit is a function's alone.
    name: String,
    /// True if the circuit breaker was open at the last use. Written under the lock.
    breaker_open: AtomicBool,
    state: Mutex<LimiterState>,
}

#[derive(Debug)]
struct LimiterState {
    store: Store,
    /// Number of permits that have not ended.
    in_flight: usize,
    /// Ends that are not written yet.
    unwritten: Vec<EndedPermit>,
    /// The beginning of a period in which the file was locked at every attempt, and the last
    /// attempt. Written by `acquire`.
    locked_ns: Option<(u64, u64)>,
    /// State of the breaker at the last use, and the state of the last warning. Written by
    /// `acquire` and `end`.
    breaker: BreakerSeen,
    warned: BreakerSeen,
    throttle_warnings: ThrottleWarnings,
    /// The last failure that the endpoint caused: time and reason.
    last_error: Option<(u64, String)>,
}

/// Visible state of a circuit breaker.
#[derive(Clone, Copy, Debug, Default)]
struct BreakerSeen {
    open: bool,
    silent: bool,
}

/// A permit that has ended.
#[derive(Clone, Copy, Debug)]
struct EndedPermit {
    grant: Grant,
    now_ns: u64,
    /// The end of its call; `None` if no call was made.
    end: Option<CallEnd>,
}

impl Limiter {
    /// Makes the limiters of an engine's functions. The file of a key is created at its first use.
    pub fn all<'a>(limits: impl IntoIterator<Item = Option<&'a Limit>>) -> Vec<Option<Arc<Self>>> {
        let mut known: Vec<(Arc<str>, Arc<Self>)> = Vec::new();
        let limiter_of = |limit: Option<&Limit>| {
            let limit = limit?;
            let same = limit.key.as_ref().and_then(|(key, _)| known.iter().find(|(name, _)| name == key));
            if let Some((_, limiter)) = same {
                return Some(limiter.clone());
            }
            let limiter = Arc::new(Self::new(limit));
            if let Some((key, _)) = &limit.key {
                known.push((key.clone(), limiter.clone()));
            }
            Some(limiter)
        };
        limits.into_iter().map(limiter_of).collect()
    }

    fn new(limit: &Limit) -> Self {
        let name = limit.key.as_ref().map_or_else(String::new, |(key, path)| format!(" '{key}' ({})", path.display()));
        let store = Store::new(limit.key.as_ref().map(|(_, path)| path.as_path()));
        let state = LimiterState {
            store,
            in_flight: 0,
            unwritten: Vec::new(),
            locked_ns: None,
            breaker: BreakerSeen::default(),
            warned: BreakerSeen::default(),
            throttle_warnings: ThrottleWarnings::default(),
            last_error: None,
        };
        let breaker_open = AtomicBool::new(false);
        Self { rules: limit.rules.clone(), name, breaker_open, state: Mutex::new(state) }
    }

    /// Returns whether the limit counts tokens.
    #[must_use]
    pub const fn counts_tokens(&self) -> bool {
        self.rules.tpm.is_some()
    }

    /// Returns the reason why a call with this many tokens, as its function counts them, can never
    /// go; `None` if it can. The call then fails at once: waiting makes no room for it, and all
    /// others would wait behind it.
    #[must_use]
    pub fn exceeds(&self, tokens: f64) -> Option<String> {
        let tpm = self.rules.tpm.filter(|tpm| tokens > *tpm)?;
        Some(format!(
            "this request takes {tokens} tokens, as Limit(tokens=) counts them, and tpm={tpm} allows fewer in a minute: shorten \
             it, raise tpm=, or lower batch_size="
        ))
    }

    /// Requests a permit for one call that takes `tokens`.
    pub fn acquire(self: &Arc<Self>, now_ns: u64, tokens: Tokens) -> AcquireResult {
        self.acquire_by(&self.rules, now_ns, tokens, true)
    }

    /// Requests a permit that may exceed `concurrency`.
    fn acquire_beyond(self: &Arc<Self>, now_ns: u64, tokens: f64, waits: bool) -> AcquireResult {
        let rates = Rules { concurrency: None, ..self.rules.clone() };
        self.acquire_by(&rates, now_ns, Tokens::Counted(tokens), waits)
    }

    /// Requests a permit. If `waits` is set, other engines can see that a call without one waits.
    fn acquire_by(self: &Arc<Self>, rules: &Rules, now_ns: u64, tokens: Tokens, waits: bool) -> AcquireResult {
        let mut state = self.state.lock();
        let in_flight = state.in_flight;
        let shared = state.store.is_shared();
        let decision = state.with(&self.rules, now_ns, |view, _| {
            let mut decision = view.ask(rules, now_ns, tokens, in_flight);
            if matches!(decision, Decision::Wait { on_release: true, .. }) && view.free_expired(now_ns) {
                decision = view.ask(rules, now_ns, tokens, in_flight);
            }
            if waits || matches!(decision, Decision::Go(_)) {
                view.asked(&decision, now_ns);
            }
            if matches!(decision, Decision::Go(_)) {
                view.set_in_flight(in_flight + 1);
            }
            (decision, view.limiter.breaker_seen())
        });
        if let Ok(Some((_, seen))) = decision {
            self.note(&mut state, seen);
        }
        let decision = decision.map(|done| done.map(|(decision, _)| decision));
        let locked_ns = state.locked_for(matches!(decision, Ok(None)), now_ns);
        match decision {
            Ok(None) if locked_ns >= LOCKED_NS => AcquireResult::Refused(format!(
                "the shared limit{} is unavailable: another process has kept its file locked for {} s; look for a suspended one",
                self.name,
                locked_ns / 1_000_000_000
            )),
            Ok(None) => AcquireResult::Wait { until_ns: now_ns + RETRY_LOCK_NS, on_release: false },
            Ok(Some(Decision::Go(grant))) => {
                state.in_flight += 1;
                AcquireResult::Permit(Permit { limiter: self.clone(), grant, open: true })
            }
            Ok(Some(Decision::Wait { until_ns, on_release })) => {
                let again_ns = if on_release { POLL_OTHERS_NS } else { SAY_AGAIN_NS };
                let until_ns = if shared { until_ns.min(now_ns + again_ns) } else { until_ns };
                AcquireResult::Wait { until_ns, on_release }
            }
            Ok(Some(Decision::BreakerOpen(for_ns))) => {
                AcquireResult::Refused(self.gives_up(&state, "circuit breaker open", "no request succeeded", for_ns))
            }
            Ok(Some(Decision::Throttled(for_ns))) => AcquireResult::Refused(self.gives_up(
                &state,
                "throttled",
                "every request was refused as one too many",
                for_ns,
            )),
            Err(error) => AcquireResult::Refused(format!("the shared limit{} is unavailable: {error}", self.name)),
        }
    }

    /// Returns the reason why calls are refused.
    fn gives_up(&self, state: &LimiterState, what: &str, why: &str, for_ns: u64) -> String {
        let of = if self.name.is_empty() { "" } else { " for limit" };
        let last = state.last_error.as_ref().map_or_else(String::new, |(_, error)| format!("; last error: {error}"));
        format!("{what}{of}{}: {why} for {} s{last}", self.name, for_ns / 1_000_000_000)
    }

    /// Returns whether some ends of calls are not written yet.
    #[must_use]
    pub fn has_unwritten(&self) -> bool {
        !self.state.lock().unwritten.is_empty()
    }

    /// Writes the ends of calls; false if that has to be tried again.
    pub fn flush(&self, now_ns: u64) -> bool {
        let mut state = self.state.lock();
        // An unusable file is reported at the next request for a permit.
        state.unwritten.is_empty() || state.with(&self.rules, now_ns, |_, _| ()).is_ok_and(|done| done.is_some())
    }

    /// Records the end of a call. True if its failure is excused: the circuit breaker is open, and
    /// the call did not cause it.
    fn end(&self, ended: EndedPermit) -> bool {
        let mut state = self.state.lock();
        state.in_flight -= 1;
        state.unwritten.push(ended);
        let Some(CallEnd { feedback, .. }) = ended.end else { return false };
        if !matches!(feedback, Feedback::Throttled(_) | Feedback::Unknown) {
            state.throttle_warnings.note_other();
        }
        // Answers wait for the next use of the file, so that many ends are one write.
        if feedback == Feedback::Ok && state.store.is_shared() {
            return false;
        }
        let look = |view: &mut LockedState, excused| (view.limiter.breaker_seen(), excused);
        match state.with(&self.rules, ended.now_ns, look) {
            Ok(Some((seen, excused))) => {
                self.note(&mut state, seen);
                excused
            }
            // Not written yet. A trial is sent on behalf of all other calls, so its failure is
            // excused.
            _ => ended.grant.trial && feedback.is_endpoint_error(),
        }
    }

    /// Records the reason of a call that failed because of the endpoint. Returns a warning if it
    /// was not given yet.
    pub fn note_error(&self, now_ns: u64, feedback: Feedback, error: &str) -> Option<LimitWarning> {
        let mut state = self.state.lock();
        if let Feedback::Throttled(retry_after) = feedback {
            state.last_error = Some((now_ns, error.to_owned()));
            // Requests of other processes may be answered.
            let alone = state.in_flight == 0 && !state.store.is_shared();
            return state.throttle_warnings.note_refusal(now_ns, retry_after, alone);
        }
        if !feedback.is_endpoint_error() {
            return None;
        }
        state.last_error = Some((now_ns, error.to_owned()));
        let (seen, warned) = (state.breaker, state.warned);
        state.warned = seen;
        if seen.silent && !warned.silent {
            return Some(LimitWarning::Hangs);
        }
        (seen.open && !warned.open && !seen.silent).then_some(LimitWarning::BreakerOpen)
    }

    /// Returns the reason of the last call that failed because of the endpoint, if it failed after
    /// `since_ns`.
    #[must_use]
    pub fn last_error(&self, since_ns: u64) -> Option<String> {
        let last = self.state.lock().last_error.clone();
        last.filter(|(at_ns, _)| *at_ns >= since_ns).map(|(_, error)| error)
    }

    /// Returns the reason why calls that don't wait for an open circuit breaker are not made.
    pub fn open_breaker(&self) -> Option<String> {
        let last_error = |(_, error): &(u64, String)| format!("; last error: {error}");
        let last = || self.state.lock().last_error.as_ref().map_or_else(String::new, last_error);
        self.breaker_is_open().then(|| format!("circuit breaker open{}", last()))
    }

    /// Returns whether the circuit breaker was open, or half-open, at the last use.
    #[must_use]
    pub fn breaker_is_open(&self) -> bool {
        self.breaker_open.load(Ordering::Relaxed)
    }

    /// Returns the number of calls that may be in flight now, if the limit bounds it. A limit that
    /// processes share always has the number of its rules.
    #[must_use]
    pub fn allowed_concurrency(&self) -> Option<usize> {
        let most = self.rules.concurrency?;
        Some(self.state.lock().store.allowed_concurrency(&self.rules, most))
    }

    fn note(&self, state: &mut LimiterState, (open, silent): (bool, bool)) {
        state.breaker = BreakerSeen { open, silent };
        state.warned.open &= open;
        state.warned.silent &= silent;
        if self.breaker_open.swap(open, Ordering::Relaxed) != open {
            debug!(open, "circuit breaker of a limit");
        }
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        self.state.lock().store.leave();
    }
}

impl LimiterState {
    /// Returns the time for which the file was locked at every attempt.
    fn locked_for(&mut self, locked: bool, now_ns: u64) -> u64 {
        let before = self.locked_ns.filter(|(_, last)| locked && now_ns.saturating_sub(*last) <= BREAK_NS);
        let since = before.map_or(now_ns, |(since, _)| since);
        self.locked_ns = locked.then_some((since, now_ns));
        now_ns.saturating_sub(since)
    }

    /// Calls `work` with the rate limiter, after ends were written, and with whether the last of
    /// them is excused; `None` if the file is locked.
    fn with<R>(
        &mut self,
        rules: &Rules,
        now_ns: u64,
        work: impl FnOnce(&mut LockedState, bool) -> R,
    ) -> io::Result<Option<R>> {
        let Self { store, unwritten, in_flight, .. } = self;
        let write = |view: &mut LockedState| {
            let (all, mut excused) = (in_flight.saturating_add(view.in_flight_elsewhere()), false);
            for EndedPermit { grant, now_ns, end } in unwritten.drain(..) {
                match end {
                    Some(end) => {
                        excused = view.limiter.record(rules, now_ns, grant, end, all, fastrand::f64());
                    }
                    None => view.limiter.refund(rules, grant),
                }
            }
            view.set_in_flight(*in_flight);
            work(view, excused)
        };
        store.with(now_ns, write)
    }
}

/// Permit for one call. If it is dropped unused, it is refunded with the next write.
#[derive(Debug)]
pub struct Permit {
    limiter: Arc<Limiter>,
    grant: Grant,
    open: bool,
}

impl Permit {
    /// Returns a permit for a second request of this call, if the rates allow one right now. It may
    /// exceed `concurrency`: if calls queue, no place would ever be free for it. The next call
    /// waits until it has ended.
    #[must_use]
    pub fn another(&self, now_ns: u64) -> Option<Self> {
        match self.limiter.acquire_beyond(now_ns, self.grant.tokens, false) {
            AcquireResult::Permit(permit) => Some(permit),
            AcquireResult::Wait { .. } | AcquireResult::Refused(_) => None,
        }
    }

    /// Ends a request of the call, which was answered; returns what its next request needs.
    #[must_use]
    pub fn answered(self, now_ns: u64) -> NextRequest {
        let (limiter, tokens) = (self.limiter.clone(), self.grant.tokens);
        self.end(now_ns, Feedback::Ok, None, History::default());
        NextRequest { limiter, tokens }
    }

    /// Ends the call; `tokens` is the number of tokens that it reported. True if its failure is
    /// excused: the circuit breaker is open, and the call did not cause it.
    pub fn end(mut self, now_ns: u64, feedback: Feedback, tokens: Option<f64>, history: History) -> bool {
        self.open = false;
        let end = Some(CallEnd { feedback, tokens, history });
        self.limiter.end(EndedPermit { grant: self.grant, now_ns, end })
    }
}

/// The next request of a call that makes several, one after the other.
#[derive(Debug)]
pub struct NextRequest {
    limiter: Arc<Limiter>,
    tokens: f64,
}

impl NextRequest {
    /// Requests a permit, which may exceed `concurrency`: the call has its place already.
    #[must_use]
    pub fn acquire(&self, now_ns: u64) -> AcquireResult {
        self.limiter.acquire_beyond(now_ns, self.tokens, true)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.open {
            self.limiter.end(EndedPermit { grant: self.grant, now_ns: self.grant.sent_ns, end: None });
        }
    }
}
