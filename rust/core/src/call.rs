//! A call: what it covers, which attempt it is, and why it may be ended from outside.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::function::{Function, Shape};
use crate::outcome::{Note, Status};

/// Scope of a call, and its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallKind {
    /// One sample.
    Sample,
    /// Some samples, of whatever groups and batches.
    Gathered,
    /// One whole group.
    Group,
    /// One whole batch.
    Batch,
    /// The scores of one whole group, for its function's `finish_group`.
    Finish,
}

impl CallKind {
    /// Returns the scope of a function's own calls.
    pub(crate) const fn of(function: &Function) -> Self {
        match function.shape {
            Shape::Sample if function.gather.is_some() => Self::Gathered,
            Shape::Sample => Self::Sample,
            Shape::Group => Self::Group,
            Shape::Batch => Self::Batch,
        }
    }
}

/// One attempt of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub first: usize,
    pub attempt: u16,
    pub finish: bool,
    /// A worker died while it ran this call: the call runs alone from now on, and a second death
    /// ends it.
    pub suspect: bool,
    /// Attempts that `retries` does not count: throttled and deferred, failed because of an open
    /// circuit breaker, or made together with other samples.
    pub deferred: u16,
    pub excused: u16,
    pub shared: u16,
    /// Attempts before one that made progress.
    pub before: u16,
    /// Number of the part that this call belongs to after a split, 0 for none. The calls of a part
    /// go together and with no others.
    pub part: u64,
}

impl Call {
    /// The first attempt of a function's own call.
    pub(crate) const fn fresh(first: usize) -> Self {
        Self {
            first,
            attempt: 1,
            finish: false,
            suspect: false,
            deferred: 0,
            excused: 0,
            shared: 0,
            before: 0,
            part: 0,
        }
    }

    /// The `finish_group` call of the group that begins at sample `first`.
    pub(crate) const fn finish(first: usize) -> Self {
        Self { finish: true, ..Self::fresh(first) }
    }

    /// Returns whether an earlier attempt has failed.
    pub(crate) const fn has_failed(&self) -> bool {
        self.attempt > self.deferred.saturating_add(self.before).saturating_add(1)
    }

    /// Returns whether the call goes behind fresh calls if its function has a limit: it failed, or
    /// was deferred more than once. A call that was deferred once goes first, because its answer
    /// shows whether the pause is over.
    pub(crate) const fn is_behind(&self) -> bool {
        let deferred_once = self.attempt == 2 && self.deferred == 1;
        self.attempt > 1 && !deferred_once && !self.finish && !self.suspect
    }

    /// Returns the part of a failure's reason that lists the attempts not counted by `retries`.
    pub(crate) fn counted_apart(&self) -> String {
        let deferred = (self.deferred, "throttled and deferred");
        let excused = (self.excused, "excused by an open circuit breaker");
        let words: Vec<String> = [deferred, excused]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if words.is_empty() { String::new() } else { format!(" (of its attempts {})", words.join(", ")) }
    }

    /// Number of attempts that count toward `retries`, this one included.
    pub(crate) fn counted(&self) -> u16 {
        let others = [self.deferred, self.excused, self.shared, self.suspect.into(), self.before];
        others.into_iter().fold(self.attempt, u16::saturating_sub)
    }

    /// Has this attempt count as the first.
    pub(crate) fn begin_anew(&mut self) {
        self.before = self.before.saturating_add(self.deferred).saturating_add(self.counted().saturating_sub(1));
        self.deferred = 0;
    }

    /// Returns whether it may be gathered with any other call.
    pub(crate) const fn is_plain(&self) -> bool {
        !self.finish && !self.suspect && self.part == 0
    }
}

/// Reasons of timeouts that end calls from outside, so they are not about the call itself.
const OUTSIDE: [&str; 3] = ["total timeout", "batch timeout", "group timeout"];

/// Text that follows such a reason if the function's endpoint had failed.
const LAST_ERROR: &str = "; last error: ";

/// Why a function's open calls in a batch were ended by the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The function's `total_timeout` passed.
    TotalTimeout,
    /// The batch's `batch_timeout` passed.
    BatchTimeout,
    /// Ctrl-C, `cancel()` or `close()`, named in the reason.
    Cancelled(String),
    /// Enough samples of the group are finished without this one.
    GroupQuorum,
    /// The group's own timeout passed.
    GroupTimeout,
    /// The function cannot run: its `setup()` failed, or its lane did.
    Broken(Note),
}

impl Cause {
    /// Returns whether the status and reason are those of a batch, group or total timeout, or of a
    /// cancellation. The call itself did not end the cell then.
    #[must_use]
    pub fn is_outside(status: Status, reason: &str) -> bool {
        let (cause, _) = reason.split_once(LAST_ERROR).unwrap_or((reason, ""));
        status == Status::Cancelled || (status == Status::Timeout && OUTSIDE.contains(&cause))
    }

    /// Returns whether an early delivery for this cause also ends the group calls: nobody waits for
    /// them then.
    pub(crate) const fn ends_group_calls(&self) -> bool {
        matches!(self, Self::GroupTimeout | Self::Cancelled(_))
    }

    /// Like `end`, with the last error of the function's endpoint after a timeout.
    pub(crate) fn end_with(&self, last_error: impl FnOnce() -> Option<String>) -> (Status, Arc<Note>) {
        let (status, note) = self.end();
        let error = if status == Status::Timeout { last_error() } else { None };
        let Some(error) = error else { return (status, note) };
        (status, Arc::new(Note { reason: format!("{}{LAST_ERROR}{error}", note.reason), traceback: None }))
    }

    /// Returns the status and note of the cells that end for this cause; the cells share the note.
    #[must_use]
    pub fn end(&self) -> (Status, Arc<Note>) {
        let note = |reason: &str| Arc::new(Note { reason: reason.to_owned(), traceback: None });
        match self {
            Self::TotalTimeout => (Status::Timeout, note(OUTSIDE[0])),
            Self::BatchTimeout => (Status::Timeout, note(OUTSIDE[1])),
            Self::Cancelled(reason) => (Status::Cancelled, note(reason)),
            Self::GroupQuorum => (Status::Cancelled, note("quorum")),
            Self::GroupTimeout => (Status::Timeout, note(OUTSIDE[2])),
            Self::Broken(why) => (Status::Error, why.clone().into()),
        }
    }
}
