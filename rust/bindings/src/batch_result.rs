//! Outcomes of a batch for Python: arrays, each made in one go, and what samples and functions
//! reported.

use std::collections::BTreeMap;
use std::sync::Arc;

use guerdon_core::batch::{Batch, CellView};
use guerdon_core::clock::seconds;
use guerdon_core::outcome::{Note, Times};
use guerdon_core::timings::Timings;
use numpy::{Element, PyArray1, PyArray2, PyArray3, PyArrayMethods};
use pyo3::exceptions::{PyIndexError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::gil;
use crate::location;
use crate::reports;

/// Number of cells that are read with the interpreter's lock held: releasing it and taking it again
/// costs more, the most if lane threads wait for it.
const FEW_CELLS: usize = 256;

/// (sample, function, status, reason, traceback, attempts, `queue_s`, `run_s`)
pub type FailureRow = (usize, usize, u8, String, Option<String>, u16, f64, f64);

/// (first sample, all samples if they were gathered, JSON)
pub type RecordOf<'py> = (usize, Vec<usize>, Bound<'py, PyBytes>);

/// (rewards, status), shaped `[G, F]`
pub type GroupArrays<'py> = (Bound<'py, PyArray2<f32>>, Bound<'py, PyArray2<u8>>);

/// The outcomes of a done batch; it holds no descriptor.
#[pyclass(frozen, module = "guerdon._native", name = "BatchResult")]
pub struct PyBatchResult(pub Arc<Batch>);

#[pymethods]
impl PyBatchResult {
    #[getter]
    fn elapsed_s(&self) -> f64 {
        seconds(self.0.elapsed_ns())
    }

    #[getter]
    fn tail_s(&self) -> f64 {
        seconds(self.0.tail_ns())
    }

    fn rewards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray3<f32>>> {
        self.array(py, |batch, sample, function| batch.shown(sample, function).0)
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray3<u8>>> {
        self.array(py, |batch, sample, function| batch.shown(sample, function).1 as u8)
    }

    fn attempts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray3<u16>>> {
        self.array(py, |batch, sample, function| batch.cell(sample, function).map_or(0, |cell| cell.attempts))
    }

    fn queue_s<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray3<f64>>> {
        self.array(py, |batch, sample, function| {
            batch.cell(sample, function).map_or(0.0, |cell| queue_s(batch, sample, function, cell.outcome.times))
        })
    }

    fn run_s<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray3<f64>>> {
        self.array(py, |batch, sample, function| {
            batch.cell(sample, function).map_or(0.0, |cell| seconds(cell.outcome.times.run_ns))
        })
    }

    fn failures(&self, py: Python<'_>) -> Vec<FailureRow> {
        let batch = &*self.0;
        let row = |(sample, function, CellView { outcome, attempts }, note): (usize, usize, CellView, Note)| {
            let (queue_s, run_s) = (queue_s(batch, sample, function, outcome.times), seconds(outcome.times.run_ns));
            let (reason, traceback) = location::described(note);
            (sample, function, outcome.status as u8, reason, traceback, attempts, queue_s, run_s)
        };
        self.read(py, || batch.failed().into_iter().map(row).collect())
    }

    /// Returns the first sample of each call that recorded values, all of them if they were
    /// gathered, and its records.
    fn records<'py>(&self, py: Python<'py>, function: usize) -> PyResult<Vec<RecordOf<'py>>> {
        self.check_function(function)?;
        let records = self.0.records_of(function);
        Ok(records.into_iter().map(|record| (record.first, record.gathered, PyBytes::new(py, &record.json))).collect())
    }

    /// Returns the usage of a function, by name; None where it reported nothing.
    fn usage(&self, function: usize) -> PyResult<Option<BTreeMap<&'static str, f64>>> {
        self.check_function(function)?;
        Ok(self.0.usage_of(function).map(reports::usage))
    }

    /// Named values of samples that a function reported, in sample order.
    fn extra<'py>(&self, py: Python<'py>, function: usize) -> PyResult<Vec<(usize, String, Bound<'py, PyAny>)>> {
        self.check_function(function)?;
        let named = self.0.extra_of(function).into_iter();
        named.map(|(sample, (name, value))| Ok((sample, name.into_owned(), reports::value(py, value)?))).collect()
    }

    fn timings<'py>(&self, py: Python<'py>, function: usize) -> PyResult<Bound<'py, PyDict>> {
        self.check_function(function)?;
        let batch = &*self.0;
        let timings = gil::detached(py, || Timings::of(batch, function));
        let result = PyDict::new(py);
        for (name, ns) in [
            ("run_p50_s", timings.run_p50),
            ("run_p90_s", timings.run_p90),
            ("run_p99_s", timings.run_p99),
            ("run_max_s", timings.run_max),
            ("run_total_s", timings.run_total),
            ("queue_p50_s", timings.queue_p50),
            ("queue_p99_s", timings.queue_p99),
            ("queue_max_s", timings.queue_max),
        ] {
            result.set_item(name, seconds(ns))?;
        }
        result.set_item("retries", f64::from(batch.retries_of(function)))?;
        result.set_item("deferrals", f64::from(batch.deferrals_of(function)))?;
        result.set_item("excused", f64::from(batch.excused_of(function)))?;
        result.set_item("shared", f64::from(batch.shared_of(function)))?;
        result.set_item("cached", f64::from(batch.cached_of(function)))?;
        Ok(result)
    }
}

impl PyBatchResult {
    /// One value a cell, shaped `[P, G, F]`.
    fn array<'py, T: Element>(
        &self,
        py: Python<'py>,
        value: impl Fn(&Batch, usize, usize) -> T + Send + Sync,
    ) -> PyResult<Bound<'py, PyArray3<T>>> {
        let batch = &*self.0;
        if !batch.is_done() {
            return Err(PyRuntimeError::new_err("the batch is not done; wait for it first"));
        }
        let functions = batch.functions().len();
        let values = || -> Vec<T> {
            (0..batch.samples())
                .flat_map(|sample| (0..functions).map(move |function| (sample, function)))
                .map(|(sample, function)| value(batch, sample, function))
                .collect()
        };
        let values = self.read(py, values);
        PyArray1::from_vec(py, values).reshape([batch.groups(), batch.group_size(), functions])
    }

    /// Reads cells, without the GIL where they are many.
    fn read<T: Send>(&self, py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
        let cells = self.0.samples().saturating_mul(self.0.functions().len());
        if cells <= FEW_CELLS { work() } else { gil::detached(py, work) }
    }

    fn check_function(&self, function: usize) -> PyResult<()> {
        let functions = self.0.functions().len();
        if function < functions {
            Ok(())
        } else {
            Err(PyIndexError::new_err(format!("function {function} of {functions}")))
        }
    }
}

/// Rewards and status of one completed group.
pub fn group<'py>(py: Python<'py>, batch: &Batch, index: usize) -> PyResult<GroupArrays<'py>> {
    if index >= batch.groups() {
        return Err(PyIndexError::new_err(format!("group {index} of {}", batch.groups())));
    }
    let (size, functions) = (batch.group_size(), batch.functions().len());
    let cells = (index * size..(index + 1) * size).flat_map(|sample| (0..functions).map(move |f| (sample, f)));
    let (rewards, status): (Vec<f32>, Vec<u8>) =
        cells.map(|(sample, function)| batch.shown(sample, function)).map(|(r, s)| (r, s as u8)).unzip();
    Ok((
        PyArray1::from_vec(py, rewards).reshape([size, functions])?,
        PyArray1::from_vec(py, status).reshape([size, functions])?,
    ))
}

/// The functions that failed on one sample, and why.
pub fn reasons(py: Python<'_>, batch: &Batch, sample: usize) -> Vec<(usize, String)> {
    let reason = |function: usize| {
        let failed = batch.cell(sample, function).is_some_and(|cell| cell.outcome.status.is_failure());
        let note = if failed { batch.note_of(sample, function) } else { None };
        note.map(|note| (function, location::described(note).0))
    };
    py.detach(|| (0..batch.functions().len()).filter_map(reason).collect())
}

/// Time in the queue: from when the call could first be made to the start of the attempt that
/// settled; 0 for a call that never started.
fn queue_s(batch: &Batch, sample: usize, function: usize, times: Times) -> f64 {
    let span = batch.functions()[function].span(batch.samples(), batch.group_size()).max(1);
    seconds(times.started_ns.saturating_sub(batch.ready_ns(sample / span * span, function)))
}
