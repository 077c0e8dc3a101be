//! Values that calls in this process were the last to hold. Letting them go may run user code
//! (`__del__`), which must not happen on a thread of a lane or of the runtime, nor above a Rust
//! frame of one.
//!
//! They wait for a thread of the caller's that comes by, or for the thread supervisor, which gets
//! them as lists: Python lets these go.

use std::sync::Arc;

use guerdon_core::payload::Payload;
use guerdon_inprocess::supervisor::{SupervisorQueue, SupervisorRequest};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::values::open_batch::OpenBatchPayload;
use crate::values::whole_batch::WholeBatchPayload;

/// One engine's.
pub struct ReleasedValues {
    supervisor: Arc<SupervisorQueue>,
    /// Written by whoever lets a payload go last, and by those who let go of what is kept.
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    payloads: Vec<Box<dyn Payload>>,
    lists: Vec<Py<PyList>>,
}

impl ReleasedValues {
    pub fn new(supervisor: Arc<SupervisorQueue>) -> Self {
        Self { supervisor, kept: Mutex::default() }
    }

    /// Keeps values; on any thread.
    pub fn keep(&self, values: Box<dyn Payload>) {
        let whole = values.as_any().downcast_ref::<WholeBatchPayload>();
        if whole.is_some_and(|whole| !whole.has_python_values()) {
            return; // bytes and strings: their end runs no code
        }
        self.kept.lock().payloads.push(values);
        self.supervisor.push(SupervisorRequest::ReleaseValues);
    }

    /// Lets go of what is kept, on a thread of the caller's.
    pub fn let_go(&self, _py: Python<'_>) {
        // Not with the lock held: user code may run.
        let kept = std::mem::take(&mut *self.kept.lock());
        drop(kept);
    }

    /// A list for Python to let go, if there is one.
    pub fn next(&self, py: Python<'_>) -> Option<Py<PyList>> {
        let Kept { payloads, mut lists } = std::mem::take(&mut *self.kept.lock());
        for payload in &payloads {
            let values = payload.as_any();
            if let Some(whole) = values.downcast_ref::<WholeBatchPayload>() {
                lists.extend(whole.lists(py));
            } else if let Some(open) = values.downcast_ref::<OpenBatchPayload>() {
                lists.extend(open.0.lists(py));
            }
        }
        // The lists live on.
        drop(payloads);
        let next = lists.pop();
        if !lists.is_empty() {
            self.kept.lock().lists.append(&mut lists);
            self.supervisor.push(SupervisorRequest::ReleaseValues);
        }
        next
    }
}

impl Drop for ReleasedValues {
    /// The engine is gone, and an abandoned call has ended since: what it held stays.
    fn drop(&mut self) {
        std::mem::forget(std::mem::take(self.kept.get_mut()));
    }
}
