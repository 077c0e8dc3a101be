//! The gate before an endpoint: what the scheduler asks before it hands out a call, and tells when one has ended.
//!
//! - T-1  Functions of one engine with one key share a gate, engines with one key the file behind it.
//! - T-2  How a call ended is owed to the file: it is written with the next look, some milliseconds later at the latest, so that many that
//!   end at a time are one look, and no call is held up by another process. Bad news is written at once.
//! - T-3  A file that can't be read or written, or that somebody keeps locked (`LOCKED_NS`: a stopped process, another program), refuses calls
//!   and says so, instead of letting them through or having them wait for ever.
//! - T-4  That an endpoint is taken for dead is said once, when it happens: calls that wait for minutes are not to do so in silence.
//! - T-5  A call that would take more tokens than a minute has fails at once: no waiting makes room for it, and all others would wait behind it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::book::{Book, Heard, Passed, Rules, Tokens, Verdict};
use super::shared::{Open, Shared};
use crate::outcome::{Answer, Failure, FailureKind};
use crate::sync::Mutex;

/// How soon to ask again when the file is in use.
const BUSY_NS: u64 = 1_000_000;
/// How long a file may be in use without a break: its lock is held for microseconds.
const LOCKED_NS: u64 = 60_000_000_000;
/// Between two looks at a file in use; after a longer pause nobody knows that it was in use all the time.
const BREAK_NS: u64 = 1_000_000_000;
/// How soon to ask again for what another process may give back: nobody tells this one.
const ELSEWHERE_NS: u64 = 10_000_000;

/// The limit of one function, as it was set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limit {
    pub rules: Rules,
    /// The endpoint, and the file of all processes that name it; without one the limit is the function's own.
    pub key: Option<(Arc<str>, PathBuf)>,
    /// Tokens of a call, about, until calls have told.
    pub tokens: Option<f64>,
}

/// What the scheduler is told.
#[derive(Debug)]
pub enum Asked {
    Go(Permit),
    /// Ask again then; sooner when a call of this gate has ended, if `on_release`.
    Wait {
        until_ns: u64,
        on_release: bool,
    },
    /// Calls are to fail, for this reason.
    Refused(String),
}

impl Heard {
    /// What a failed attempt tells of the endpoint.
    #[must_use]
    pub fn of(failure: &Failure) -> Self {
        match (failure.kind, failure.answer) {
            (FailureKind::Error, Some(Answer::Status(429))) => Self::Busy(failure.retry_after),
            // "Overloaded, come back": it lives.
            (FailureKind::Error, Some(Answer::Status(500..))) if failure.retry_after.is_some() => {
                Self::Busy(failure.retry_after)
            }
            (FailureKind::Error, Some(Answer::Status(500..) | Answer::Unreachable)) => Self::Sick,
            (FailureKind::Error, Some(Answer::Status(_))) => Self::Answer,
            _ => Self::Nothing,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Gate {
    rules: Rules,
    name: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    store: Store,
    /// Permits that have not ended.
    in_use: usize,
    /// Ends that are not written yet (T-2).
    owed: Vec<End>,
    /// Since when the file was in use whenever it was asked for, and when that was last. Written by asking.
    locked_ns: Option<(u64, u64)>,
    /// Whether the endpoint was taken for dead the last time that anyone looked, and whether that was said (T-4). Written by asking and ending.
    dead: bool,
    said: bool,
    /// What the last call said that failed for the endpoint's sake.
    why: Option<String>,
}

#[derive(Debug)]
enum Store {
    Own(Book),
    Shared(Box<Shared>),
}

#[derive(Clone, Copy, Debug)]
struct End {
    passed: Passed,
    now_ns: u64,
    heard: Heard,
    tokens: Option<f64>,
    used: bool,
}

impl Gate {
    /// The gates of an engine's functions (T-1). The file of a key is made with its first use.
    pub fn all<'a>(limits: impl IntoIterator<Item = Option<&'a Limit>>) -> Vec<Option<Arc<Self>>> {
        let mut known: Vec<(Arc<str>, Arc<Self>)> = Vec::new();
        let gate_of = |limit: Option<&Limit>| {
            let limit = limit?;
            let same = limit.key.as_ref().and_then(|(key, _)| known.iter().find(|(name, _)| name == key));
            if let Some((_, gate)) = same {
                return Some(gate.clone());
            }
            let gate = Arc::new(Self::new(limit));
            if let Some((key, _)) = &limit.key {
                known.push((key.clone(), gate.clone()));
            }
            Some(gate)
        };
        limits.into_iter().map(gate_of).collect()
    }

    fn new(limit: &Limit) -> Self {
        let (name, store) = match &limit.key {
            None => (String::new(), Store::Own(Book::default())),
            Some((key, path)) => (format!(" '{key}' ({})", path.display()), Store::Shared(Box::new(Shared::new(path)))),
        };
        let state = State { store, in_use: 0, owed: Vec::new(), locked_ns: None, dead: false, said: false, why: None };
        Self { rules: limit.rules.clone(), name, state: Mutex::new(state) }
    }

    /// Whether tokens count.
    #[must_use]
    pub const fn counts_tokens(&self) -> bool {
        self.rules.tpm.is_some()
    }

    /// Why a call that takes so many tokens, as its function counts them, will never be let through; `None` if it may be.
    #[must_use]
    pub fn never(&self, tokens: f64) -> Option<String> {
        let tpm = self.rules.tpm.filter(|tpm| tokens > *tpm)?;
        Some(format!(
            "it takes {tokens} tokens, as Limit(tokens=) counts them, and a minute has tpm={tpm}: shorten it, raise tpm=, or lower the batch= of its \
             function"
        ))
    }

    /// Asks for one call that takes `tokens`.
    pub fn ask(self: &Arc<Self>, now_ns: u64, tokens: Tokens) -> Asked {
        let mut state = self.state.lock();
        let in_use = state.in_use;
        let shared = matches!(state.store, Store::Shared(_));
        let verdict = state.with(&self.rules, now_ns, |page| {
            let mut verdict = page.ask(&self.rules, now_ns, tokens, in_use);
            if matches!(verdict, Verdict::Wait { on_release: true, .. }) && page.free_dead(now_ns) {
                verdict = page.ask(&self.rules, now_ns, tokens, in_use);
            }
            if matches!(verdict, Verdict::Go(_)) {
                page.mine(in_use + 1);
            }
            (verdict, page.book().is_dead())
        });
        if let Ok(Some((_, dead))) = verdict {
            state.note(dead);
        }
        let verdict = verdict.map(|asked| asked.map(|(verdict, _)| verdict));
        let locked_ns = state.locked_for(matches!(verdict, Ok(None)), now_ns);
        match verdict {
            Ok(None) if locked_ns >= LOCKED_NS => Asked::Refused(format!(
                "the shared limit{} can't be used: another process has kept its file locked for {} s. Is one stopped?",
                self.name,
                locked_ns / 1_000_000_000
            )),
            Ok(None) => Asked::Wait { until_ns: now_ns + BUSY_NS, on_release: false },
            Ok(Some(Verdict::Go(passed))) => {
                state.in_use += 1;
                Asked::Go(Permit { gate: self.clone(), passed, open: true })
            }
            Ok(Some(Verdict::Wait { until_ns, on_release })) => {
                let until_ns = if shared && on_release { until_ns.min(now_ns + ELSEWHERE_NS) } else { until_ns };
                Asked::Wait { until_ns, on_release }
            }
            Ok(Some(Verdict::Dead(for_ns))) => Asked::Refused(format!(
                "the endpoint{} is taken for dead: no call was answered for {} s{}",
                self.name,
                for_ns / 1_000_000_000,
                state.why.as_ref().map_or_else(String::new, |why| format!("; the last one: {why}"))
            )),
            Err(error) => Asked::Refused(format!("the shared limit{} can't be used: {error}", self.name)),
        }
    }

    /// Whether something is owed.
    #[must_use]
    pub fn owes(&self) -> bool {
        !self.state.lock().owed.is_empty()
    }

    /// Writes what is owed; false if that has to be tried again.
    pub fn settle(&self, now_ns: u64) -> bool {
        let mut state = self.state.lock();
        // A file that can't be used is told of when it is asked (T-3).
        state.owed.is_empty() || state.with(&self.rules, now_ns, |_| ()).is_ok_and(|done| done.is_some())
    }

    fn end(&self, end: End) -> bool {
        let mut state = self.state.lock();
        state.in_use -= 1;
        state.owed.push(end);
        // T-2
        if !end.used || (end.heard == Heard::Answer && matches!(state.store, Store::Shared(_))) {
            return false;
        }
        let dead = |page: &mut Page<'_>| page.book().is_dead();
        let dead = matches!(state.with(&self.rules, end.now_ns, dead), Ok(Some(true)));
        state.note(dead);
        dead
    }

    /// Keeps what a call said that failed for the endpoint's sake; true if the endpoint is taken for dead since, and nobody said so yet (T-4).
    pub(crate) fn blame(&self, why: &str) -> bool {
        let mut state = self.state.lock();
        state.why = Some(why.to_owned());
        let news = state.dead && !state.said;
        state.said |= news;
        news
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Store::Shared(shared) = &mut self.state.lock().store {
            shared.leave();
        }
    }
}

/// The book in use, whosever it is.
enum Page<'a> {
    Own(&'a mut Book),
    Shared(&'a mut Open),
}

impl Page<'_> {
    const fn book(&mut self) -> &mut Book {
        match self {
            Self::Own(book) => book,
            Self::Shared(open) => &mut open.book,
        }
    }

    fn ask(&mut self, rules: &Rules, now_ns: u64, tokens: Tokens, in_use: usize) -> Verdict {
        let elsewhere = if let Self::Shared(open) = self { open.elsewhere() } else { 0 };
        self.book().ask(rules, now_ns, tokens, in_use.saturating_add(elsewhere))
    }

    fn mine(&mut self, in_use: usize) {
        if let Self::Shared(open) = self {
            open.mine(in_use);
        }
    }

    fn free_dead(&mut self, now_ns: u64) -> bool {
        if let Self::Shared(open) = self { open.free_dead(now_ns) } else { false }
    }
}

impl State {
    const fn note(&mut self, dead: bool) {
        self.dead = dead;
        self.said &= dead;
    }

    /// For how long the file has been in use without a break, as far as anyone looked.
    fn locked_for(&mut self, locked: bool, now_ns: u64) -> u64 {
        let before = self.locked_ns.filter(|(_, last)| locked && now_ns.saturating_sub(*last) <= BREAK_NS);
        let since = before.map_or(now_ns, |(since, _)| since);
        self.locked_ns = locked.then_some((since, now_ns));
        now_ns.saturating_sub(since)
    }

    /// Does something with the book, after what is owed was written; `None` if the file is in use.
    fn with<R>(&mut self, rules: &Rules, now_ns: u64, work: impl FnOnce(&mut Page<'_>) -> R) -> io::Result<Option<R>> {
        let Self { store, owed, in_use, .. } = self;
        let write = |page: &mut Page<'_>| {
            for End { passed, now_ns, heard, tokens, used } in owed.drain(..) {
                if used {
                    page.book().learn(rules, now_ns, passed, heard, tokens, fastrand::f64());
                } else {
                    page.book().forget(rules, passed);
                }
            }
            page.mine(*in_use);
            work(page)
        };
        match store {
            Store::Own(book) => Ok(Some(write(&mut Page::Own(book)))),
            Store::Shared(shared) => shared.with(now_ns, |open| write(&mut Page::Shared(open))),
        }
    }
}

/// Leave for one call. Dropped, it was not used; that is written with the next look.
#[derive(Debug)]
pub struct Permit {
    gate: Arc<Gate>,
    passed: Passed,
    open: bool,
}

impl Permit {
    /// The call has ended; `tokens` are those it used, if it told. True if the endpoint is taken for dead (B-5): the call is not to blame.
    pub fn end(mut self, now_ns: u64, heard: Heard, tokens: Option<f64>) -> bool {
        self.open = false;
        let dead = self.gate.end(End { passed: self.passed, now_ns, heard, tokens, used: true });
        dead || self.passed.probe
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.open {
            let now_ns = self.passed.sent_ns;
            self.gate.end(End { passed: self.passed, now_ns, heard: Heard::Nothing, tokens: None, used: false });
        }
    }
}
