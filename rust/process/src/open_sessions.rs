//! The frames of all workers, for `dump()` and for threads that complete ended calls before the
//! sessions do: the end of a batch counts the calls that have returned by then.

use std::sync::{Arc, Weak};
use std::time::Duration;

use guerdon_core::function::FunctionId;
use parking_lot::Mutex;

use crate::child::Child;
use crate::in_flight::InFlightFrames;

/// Time to wait for a session that has locked its frames. It may run the user's code while it
/// pickles values, and deadlines must not wait for that.
const PATIENCE: Duration = Duration::from_millis(2);

#[derive(Default)]
pub(super) struct OpenSessions(Mutex<Vec<OpenSession>>);

struct OpenSession {
    child: Weak<Child>,
    frames: Weak<Mutex<InFlightFrames>>,
}

impl OpenSessions {
    /// Adds the frames of a new session.
    pub(super) fn open(&self, child: &Arc<Child>) -> Arc<Mutex<InFlightFrames>> {
        let frames = Arc::default();
        let mut open = self.0.lock();
        open.retain(|session| session.child.strong_count() > 0);
        open.push(OpenSession { child: Arc::downgrade(child), frames: Arc::downgrade(&frames) });
        frames
    }

    /// Returns the workers, each with its frames.
    pub(super) fn all(&self) -> Vec<(Arc<Child>, Arc<Mutex<InFlightFrames>>)> {
        let both = |session: &OpenSession| Some((session.child.upgrade()?, session.frames.upgrade()?));
        self.0.lock().iter().filter_map(both).collect()
    }

    /// Completes the calls that have returned, except those of functions whose output is counted.
    pub(super) fn complete_ended(&self, is_metered: impl Fn(FunctionId) -> bool, now_ns: impl Fn() -> u64) {
        for (child, frames) in self.all() {
            let Some(mut frames) = frames.try_lock_for(PATIENCE).filter(|frames| !frames.is_empty()) else { continue };
            if let (Ok(earlier), Ok(page)) = (child.page.read(), child.page.read()) {
                frames.complete_ahead(&earlier, &page, &is_metered, now_ns());
            }
        }
    }
}
