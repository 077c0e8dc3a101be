//! Stack of the worker, requested on another task: the session waits only for the stack of a call
//! that it is about to kill.

use std::time::Duration;

use tokio::time::timeout;

use super::Session;
use super::pending::{AbortOnDrop, StackAnswer};
use crate::call_watch::MOST_WORDS;

/// Time in which a worker's stack must come before its kill, counted from the time when the kill
/// was due and from the request.
const LATE_STACK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = LATE_STACK.saturating_add(MOST_WORDS);

impl Session {
    /// Requests the stack of a claim, on another task.
    pub(super) fn ask(&self, claim: u64) -> StackAnswer {
        let (child, shared) = (self.process.child.clone(), self.shared.clone());
        let answer = tokio::spawn(async move { child.stack(claim, &shared.worker_dir, LAST_LOOK).await.ok() });
        StackAnswer { claim, answer: AbortOnDrop(answer) }
    }

    /// Returns the stack of the call for which the worker is killed, unless the call's outcome is
    /// not needed any more.
    pub(super) async fn last_stack(&mut self, claim: u64) -> Option<String> {
        let page = self.process.child.page.read().ok()?;
        self.in_flight.lock().running_claim(&page).filter(|hand| hand.claim == claim && hand.open)?;
        let asked = self.stack_answer.take().filter(|asked| asked.claim == claim);
        let mut asked = asked.unwrap_or_else(|| self.ask(claim));
        timeout(LATE_STACK, &mut asked.answer.0).await.ok()?.ok()?
    }
}
