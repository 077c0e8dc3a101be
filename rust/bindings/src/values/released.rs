//! Values that calls in this process were the last to hold. Letting them go may run user code
//! (`__del__`), which must not happen on a thread of a lane or of the runtime, nor above a Rust
//! frame of one.
//!
//! They wait for a thread of the caller's that comes by, or for the thread supervisor, which gets
//! them as lists and drops them with the GIL held.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::payload::Payload;
use guerdon_inprocess::supervisor::{SupervisorQueue, SupervisorRequest};
use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;
use pyo3::types::PyList;
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::values::open_batch::OpenBatchPayload;
use crate::values::whole_batch::WholeBatchPayload;

/// Time for a thread of the caller's to take them. A supervisor that came at once would have the
/// GIL while the caller needs it for its next batch.
const PATIENCE: Duration = Duration::from_millis(20);

/// One engine's.
pub struct ReleasedValues {
    runtime: Handle,
    supervisor: Arc<SupervisorQueue>,
    /// Written by the last holder of a payload, and by the threads that drop the kept objects.
    kept: Mutex<KeptObjects>,
}

#[derive(Default)]
struct KeptObjects {
    payloads: Vec<Box<dyn Payload>>,
    lists: Vec<Py<PyList>>,
    /// The supervisor has a request to come for them.
    asked: bool,
}

impl KeptObjects {
    fn take(&mut self) -> (Vec<Box<dyn Payload>>, Vec<Py<PyList>>) {
        (std::mem::take(&mut self.payloads), std::mem::take(&mut self.lists))
    }
}

impl ReleasedValues {
    pub fn new(runtime: Handle, supervisor: Arc<SupervisorQueue>) -> Self {
        Self { runtime, supervisor, kept: Mutex::default() }
    }

    /// Keeps values; on any thread.
    pub fn keep(&self, values: Box<dyn Payload>) {
        let any = values.as_any();
        let whole = any.downcast_ref::<WholeBatchPayload>().is_some_and(WholeBatchPayload::has_python_values);
        if !whole && !any.is::<OpenBatchPayload>() {
            return; // bytes and strings, a frame's for workers too: their end runs no code
        }
        let mut kept = self.kept.lock();
        kept.payloads.push(values);
        self.ask(kept);
    }

    /// Keeps the values of a list, unless it is empty.
    pub fn keep_list(&self, list: &Bound<'_, PyList>) {
        if !list.is_empty() {
            let mut kept = self.kept.lock();
            kept.lists.push(list.clone().unbind());
            self.ask(kept);
        }
    }

    /// Drops the kept objects, on a thread of the caller's.
    pub fn let_go(&self, _py: Python<'_>) {
        // Not with the lock held: user code may run.
        let kept = self.kept.lock().take();
        drop(kept);
    }

    /// Asks the supervisor to come, unless it was asked: there may be none that takes requests.
    fn ask(&self, mut kept: MutexGuard<'_, KeptObjects>) {
        if !std::mem::replace(&mut kept.asked, true) {
            drop(kept);
            self.supervisor.push_silently(SupervisorRequest::ReleaseValues);
            let supervisor = self.supervisor.clone();
            self.runtime.spawn(async move {
                sleep(PATIENCE).await;
                supervisor.wake();
            });
        }
    }

    /// A list for Python to let go, if there is one.
    pub fn next(&self, py: Python<'_>) -> Option<Py<PyList>> {
        let (payloads, mut lists) = {
            let mut kept = self.kept.lock();
            kept.asked = false;
            kept.take()
        };
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
            let mut kept = self.kept.lock();
            kept.lists.append(&mut lists);
            self.ask(kept);
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
