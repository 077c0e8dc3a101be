//! `Batch`: a batch in flight or finished, as Python sees it (`batch_result`: its outcomes).
//!
//! - A batch in flight belongs to the process that submitted it: in a forked child it would never
//!   end, and its locks may be held by threads that the child lacks. There, waiting and cancelling
//!   raise.
//! - It holds a descriptor to wait for its end by, one more once somebody has waited for a group,
//!   and one more with `max_pending`.

use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use guerdon_core::batch::Batch;
use guerdon_core::open_batch::{AddError, Placement};
use guerdon_core::payload::SharedPayload;
use guerdon_core::scheduler::Scheduler;
use guerdon_core::wake::{Wake, no_descriptor};
use pyo3::PyTraverseError;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use tokio::runtime::Handle;

use crate::batch_result::{self, GroupArrays, PyBatchResult};
use crate::gil;
use crate::values::columns::PyFunctionColumns;
use crate::values::open_batch::OpenBatchValues;
use crate::values::released::ReleasedValues;
use crate::values::whole_batch::WholeBatchPayload;

#[pyclass(frozen, module = "guerdon._native", name = "Batch")]
pub struct PyBatch {
    pid: u32,
    batch: Arc<Batch>,
    /// Weak: a result that someone keeps must not keep the engine.
    scheduler: Weak<Scheduler>,
    /// Values of a batch that streamed: its values.
    open_values: Option<Arc<OpenBatchValues>>,
    /// Held from when places are taken until their values are there, and by the end of additions:
    /// without the GIL, a call on the whole batch would else begin between the two.
    adding: Mutex<()>,
    /// Values that calls on lanes' threads were the last to hold.
    released: Arc<ReleasedValues>,
    end: Option<Arc<Wake>>,
    runtime: Handle,
}

impl PyBatch {
    pub fn new(
        batch: Arc<Batch>,
        scheduler: &Arc<Scheduler>,
        open_values: Option<Arc<OpenBatchValues>>,
        released: Arc<ReleasedValues>,
        runtime: Handle,
    ) -> Self {
        let (pid, end) = (std::process::id(), batch.end());
        let (scheduler, adding) = (Arc::downgrade(scheduler), Mutex::default());
        Self { pid, batch, scheduler, open_values, adding, released, end, runtime }
    }

    fn end(&self) -> PyResult<&Wake> {
        self.end.as_deref().ok_or_else(|| PyRuntimeError::new_err("nobody waits for a result"))
    }

    /// Returns the wake-up for completed groups. The batch keeps it while this object waits, so
    /// that its number stays good.
    fn news(&self) -> PyResult<Arc<Wake>> {
        self.end()?;
        self.batch.news().map_err(|error| {
            PyOSError::new_err(no_descriptor("waiting for the groups of a batch needs a file descriptor", &error))
        })
    }

    /// The scheduler, if there still is one.
    fn scheduler(&self) -> PyResult<Arc<Scheduler>> {
        self.check_process()?;
        self.scheduler
            .upgrade()
            .ok_or_else(|| PyRuntimeError::new_err("this batch takes no more samples: the engine is gone"))
    }

    /// Lets the values of complete groups go, on this thread.
    fn let_go(&self, py: Python<'_>) -> PyResult<()> {
        self.released.let_go(py);
        let Some(open_values) = &self.open_values else { return Ok(()) };
        let size = self.batch.group_size();
        self.batch
            .take_completed()
            .into_iter()
            .try_for_each(|group| open_values.forget(py, group * size..(group + 1) * size))
    }

    fn check_process(&self) -> PyResult<()> {
        if self.pid == std::process::id() {
            Ok(())
        } else {
            Err(PyRuntimeError::new_err(
                "the batch was submitted in another process, and ends only there: a forked child can submit its own",
            ))
        }
    }
}

#[pymethods]
impl PyBatch {
    #[getter]
    fn samples(&self) -> usize {
        self.batch.samples()
    }

    #[getter]
    fn num_generations(&self) -> usize {
        self.batch.group_size()
    }

    #[getter]
    fn done(&self) -> bool {
        self.batch.is_done()
    }

    fn fileno(&self) -> PyResult<i32> {
        Ok(self.end()?.fd().as_raw_fd())
    }

    fn groups_fileno(&self) -> PyResult<i32> {
        self.check_process()?;
        Ok(self.news()?.fd().as_raw_fd())
    }

    fn result(&self) -> PyBatchResult {
        PyBatchResult(self.batch.clone())
    }

    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        if self.batch.is_done() {
            return Ok(true);
        }
        self.check_process()?;
        gil::readable(py, self.end()?.fd(), gil::end_of(timeout))?;
        Ok(self.batch.is_done())
    }

    #[pyo3(signature = (timeout = None))]
    fn next_group(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<usize>> {
        let started = Instant::now();
        let end = gil::end_of(timeout);
        self.check_process()?;
        loop {
            if let Some(group) = self.batch.take_group() {
                self.let_go(py)?;
                return Ok(Some(group));
            }
            if self.batch.is_exhausted() {
                return Ok(None);
            }
            if end.is_some_and(|end| end <= started) {
                return Err(PyTimeoutError::new_err("no group is complete"));
            }
            if !gil::readable(py, self.news()?.fd(), end)? {
                return Err(PyTimeoutError::new_err("no group was completed in time"));
            }
        }
    }

    #[getter]
    fn open(&self) -> bool {
        self.check_process().is_ok() && self.batch.is_open()
    }

    #[pyo3(signature = (columns, uses, *, count, dumps, group = None, samples = None, journal = Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn add<'py>(
        &self,
        py: Python<'py>,
        columns: Vec<Bound<'py, PyAny>>,
        uses: Vec<PyRef<'py, PyFunctionColumns>>,
        count: usize,
        dumps: &Bound<'py, PyAny>,
        group: Option<usize>,
        samples: Option<Vec<usize>>,
        journal: Vec<Option<usize>>,
    ) -> PyResult<Vec<usize>> {
        let scheduler = self.scheduler()?;
        let Some(open_values) = &self.open_values else {
            return Err(PyRuntimeError::new_err("this batch takes no more samples: it was submitted whole"));
        };
        self.let_go(py)?;
        let addition = open_values.prepare(py, &columns, &uses, count, dumps, journal)?;
        let places = match (samples, group) {
            (Some(samples), _) if samples.len() != count => {
                let problem = format!("samples= has {} indexes for {count} samples", samples.len());
                return Err(PyValueError::new_err(problem));
            }
            (Some(samples), _) => Placement::Exact(samples),
            (None, Some(group)) => Placement::OfGroup(group, count),
            (None, None) => Placement::InOrder(count),
        };
        let adding = self.adding.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let added = self.batch.reserve(&places).map_err(refused)?;
        open_values.put(py, &addition, &added.samples)?;
        drop(adding);
        gil::detached(py, || scheduler.add(&self.batch, &added));
        Ok(added.samples)
    }

    #[getter]
    fn has_room(&self) -> PyResult<bool> {
        self.check_process()?;
        Ok(self.batch.has_room())
    }

    fn room_fileno(&self) -> PyResult<Option<i32>> {
        self.check_process()?;
        Ok(self.batch.room().map(|room| room.fd().as_raw_fd()))
    }

    fn wait_for_room(&self, py: Python<'_>) -> PyResult<()> {
        // First: a lock that another thread held at the fork is never released in the child.
        self.check_process()?;
        while !self.batch.has_room() {
            if let Some(room) = self.batch.room() {
                gil::readable(py, room.fd(), None)?;
            }
        }
        Ok(())
    }

    /// Shows the collector the values of a batch that is done and was not released: one may lead
    /// back to it.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some(payload) = self.own_payload() else { return Ok(()) };
        let values = payload.as_any();
        if let Some(whole) = values.downcast_ref::<WholeBatchPayload>() {
            return whole.traverse(&visit);
        }
        match &self.open_values {
            // The payload holds them too.
            Some(open_values) if Arc::strong_count(open_values) == 2 => open_values.traverse(&visit),
            _ => Ok(()),
        }
    }

    fn __clear__(&self, py: Python<'_>) {
        if self.own_payload().is_some() {
            drop(self.batch.release());
            self.released.let_go(py);
        }
    }

    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let scheduler = self.scheduler()?;
        let _adding = self.adding.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let finished = gil::detached(py, || scheduler.finish(&self.batch));
        finished.map_err(|incomplete| PyValueError::new_err(incomplete.to_string()))
    }

    fn cancel(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        self.check_process()?;
        if let Some(scheduler) = self.scheduler.upgrade() {
            gil::detached(py, || scheduler.cancel(&self.batch, reason));
        }
        Ok(())
    }

    fn cancel_group(&self, py: Python<'_>, group: usize, reason: &str) -> PyResult<()> {
        self.check_process()?;
        if let Some(scheduler) = self.scheduler.upgrade().filter(|_| group < self.batch.groups()) {
            gil::detached(py, || scheduler.cancel_group(&self.batch, group, reason));
        }
        Ok(())
    }

    fn release(&self, py: Python<'_>) -> PyResult<()> {
        if self.check_process().is_ok() {
            self.let_go(py)?;
            // Not in a forked child: what the batch holds is not the child's to release.
            drop(self.batch.release());
            self.released.let_go(py);
        }
        Ok(())
    }

    fn group<'py>(&self, py: Python<'py>, index: usize) -> PyResult<GroupArrays<'py>> {
        batch_result::group(py, &self.batch, index)
    }

    #[pyo3(signature = (sample, /))]
    fn reasons(&self, py: Python<'_>, sample: usize) -> Vec<(usize, String)> {
        batch_result::reasons(py, &self.batch, sample)
    }
}

impl Drop for PyBatch {
    /// An open batch that nobody can add to any more would never end; one that is done is
    /// waited for no more.
    fn drop(&mut self) {
        if self.end.is_some() && self.pid == std::process::id() {
            self.batch.forget_wakes();
        }
        if self.batch.is_streamed()
            && self.check_process().is_ok()
            && self.batch.is_open()
            && let Some(scheduler) = self.scheduler.upgrade()
        {
            let batch = self.batch.clone();
            self.runtime.spawn(async move { scheduler.cancel(&batch, "its OpenBatch was dropped") });
        }
    }
}

/// Returns a `ValueError` if the caller can correct it, a `RuntimeError` if it is too late.
fn refused(why: AddError) -> PyErr {
    match why {
        AddError::Ended(_) => PyRuntimeError::new_err(why.to_string()),
        AddError::NoRoom { .. } | AddError::Taken(_) | AddError::TooFar { .. } => {
            PyValueError::new_err(why.to_string())
        }
    }
}

impl PyBatch {
    /// The values, if nobody else holds them: each is shown to the collector by one owner alone.
    fn own_payload(&self) -> Option<SharedPayload> {
        // Nobody else has the batch, so nobody holds its locks, nor comes to.
        let own = Arc::strong_count(&self.batch) == 1 && self.batch.is_done() && self.check_process().is_ok();
        // The batch's, and this one.
        own.then(|| self.batch.payload()).flatten().filter(|payload| payload.owners() == 2)
    }
}
