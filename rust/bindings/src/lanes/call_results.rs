//! Conversions of call results between Python and the core.

use std::time::Duration;

use guerdon_core::frame::Frame;
use guerdon_core::outcome::{Answer, Cell, Failure, FailureKind, Traceback};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

/// The cell of one call that gave a number (0) or abstained (1).
pub const fn cell(status: u8, value: f64) -> Cell {
    if status == 0 { Cell::Value(value) } else { Cell::Abstained }
}

/// The cells of a call on several samples: a status and a double each, and a text for each that is
/// not a reward, in order.
pub fn cells(statuses: &[u8], values: &[u8], wrong: &Bound<'_, PyList>) -> PyResult<Vec<Cell>> {
    let (values, rest) = values.as_chunks::<8>();
    if values.len() != statuses.len() || !rest.is_empty() {
        return Err(PyValueError::new_err("there must be one value a status"));
    }
    let mut texts = 0;
    let of = |(status, value): (&u8, &[u8; 8])| match status {
        0 | 1 => Ok(cell(*status, f64::from_ne_bytes(*value))),
        _ => {
            texts += 1;
            wrong.get_item(texts - 1)?.extract().map(Cell::Invalid)
        }
    };
    statuses.iter().zip(values).map(of).collect()
}

/// Returns the failure of a call that ended with an exception, or with a value that is not a
/// reward.
pub fn failure(
    reason: String,
    traceback: Option<String>,
    retryable: bool,
    retry_after: Option<f64>,
    answer: Option<u16>,
) -> Failure {
    let retry_after = retry_after.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let answer = answer.map(Answer::from_u16);
    let traceback = traceback.map(Traceback::Raised);
    Failure { kind: FailureKind::Error, reason, traceback, retryable, retry_after, answer, progressed: false }
}

/// JSON of a call's records.
pub fn json(records: Option<&Bound<'_, PyBytes>>) -> Option<Vec<u8>> {
    records.map(|bytes| bytes.as_bytes().to_vec())
}

/// Numbers for Python: not a list, since making one could run the collector (see
/// `values::python_values`).
pub fn packed<'py, const N: usize>(py: Python<'py>, numbers: impl Iterator<Item = [u8; N]>) -> Bound<'py, PyBytes> {
    let bytes: Vec<u8> = numbers.flatten().collect();
    PyBytes::new(py, &bytes)
}

/// Returns scores as doubles, NaN for missing ones.
pub fn scores<'py>(py: Python<'py>, scores: Vec<Option<f64>>) -> Bound<'py, PyBytes> {
    packed(py, scores.into_iter().map(|score| score.unwrap_or(f64::NAN).to_ne_bytes()))
}

/// The samples of a call on gathered ones that still count, each with the number of its slice in
/// the upper half.
pub fn gathered(frame: &mut Frame, call: usize) -> Vec<u64> {
    frame.leave_out_swept();
    frame.samples_by_slice(call).map(|(slice, sample)| (slice as u64) << 32 | sample as u64).collect()
}
