//! `Kernel`: a native reward function, for the native lane and for plain calls.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use guerdon_core::timeout_messages::no_answer;
use guerdon_native::kernels::{self, Fault, Input, Kernel};
use guerdon_native::{InputKind, read_input};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::gil;
use crate::values::text::Texts;

/// Made of a JSON object: its name as `kernel`, and all its options; and of its columns' names.
#[pyclass(frozen, module = "guerdon._native", name = "Kernel")]
pub struct PyKernel {
    kernel: Arc<dyn Kernel>,
}

#[pymethods]
impl PyKernel {
    #[new]
    fn new(spec: &str, columns: Vec<String>) -> PyResult<Self> {
        let kernel = kernels::kernel(spec, columns).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { kernel: kernel.into() })
    }

    /// The score of each sample, None where it abstains. A column is its kind, "text" or "made",
    /// and one text a sample. `timeout`: seconds that a sample may take. `ValueError(message,
    /// sample)`: that sample can't be scored. Raises what a signal's handler raises.
    #[pyo3(signature = (columns, timeout=None))]
    fn scores(
        &self,
        py: Python<'_>,
        columns: Vec<(String, Bound<'_, PyList>)>,
        timeout: Option<f64>,
    ) -> PyResult<Vec<Option<f64>>> {
        let forms = self.kernel.inputs();
        let samples = columns.first().map_or(0, |(_, list)| list.len());
        if columns.len() != forms.len() || columns.iter().any(|(_, list)| list.len() != samples) {
            return Err(PyValueError::new_err(format!("expected {} columns of one length", forms.len())));
        }
        let texts = columns.iter().map(|(kind, list)| {
            // A copy, which nobody changes while it is read.
            let texts = Texts::of(&list.get_slice(0, samples))?;
            let texts = texts.filter(|texts| texts.len() == samples);
            Ok((InputKind::of(kind), texts.ok_or_else(|| PyValueError::new_err("a column is not made of texts"))?))
        });
        let texts = texts.collect::<PyResult<Vec<_>>>()?;
        let score = |sample: usize, is_raised: &dyn Fn() -> bool| {
            let end = gil::end_of(timeout);
            let is_late = || end.is_some_and(|end| Instant::now() >= end);
            let scored = catch_unwind(AssertUnwindSafe(|| {
                let inputs =
                    texts.iter().zip(&forms).map(|((kind, texts), form)| read_input(texts.raw(sample), *kind, *form));
                self.kernel.score(&inputs.collect::<Vec<Input<'_>>>(), &|| is_late() || is_raised())
            }));
            match scored {
                // One that never asks is late too; a short text asks nobody about signals.
                _ if is_late() => Err(no_answer(Duration::from_secs_f64(timeout.unwrap_or_default().max(0.0)))),
                Ok(scored) => if is_raised() { Err(Fault::Stopped) } else { scored }.map_err(|fault| fault.to_string()),
                Err(_) => Err("the kernel panicked: please report it".to_owned()),
            }
        };
        let scores = gil::interruptible(py, |is_raised| {
            (0..samples).map(|sample| score(sample, is_raised).map_err(|why| (why, sample))).collect::<Result<_, _>>()
        })?;
        scores.map_err(|(why, sample): (String, usize)| PyValueError::new_err((why, sample)))
    }
}
