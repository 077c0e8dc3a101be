//! Location of the worker, requested beside everything else: the session never waits for a stack
//! but that of a call it is about to kill.

use std::time::Duration;

use tokio::time::timeout;

use super::Session;
use super::pending::{AbortOnDrop, StackAnswer};
use crate::call_watch::MOST_WORDS;

/// Time that a worker to be killed has to report its location, from the time the kill was due and
/// from the request.
const LATE_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = LATE_LOOK.saturating_add(MOST_WORDS);

impl Session {
    /// Asks for the location of a claim, beside everything else.
    pub(super) fn ask(&self, claim: u64) -> StackAnswer {
        let (child, shared) = (self.process.child.clone(), self.shared.clone());
        let answer = tokio::spawn(async move { child.stack(claim, &shared.worker_dir, LAST_LOOK).await.ok() });
        StackAnswer { claim, answer: AbortOnDrop(answer) }
    }

    /// Returns the location of the call that the worker is killed for, unless the call's outcome is
    /// not needed any more.
    pub(super) async fn last_stack(&mut self, claim: u64) -> Option<String> {
        let page = self.process.child.page.read().ok()?;
        self.in_flight.lock().in_hand(&page).filter(|hand| hand.claim == claim && hand.open)?;
        let asked = self.stack_answer.take().filter(|asked| asked.claim == claim);
        let mut asked = asked.unwrap_or_else(|| self.ask(claim));
        timeout(LATE_LOOK, &mut asked.answer.0).await.ok()?.ok()?
    }
}
