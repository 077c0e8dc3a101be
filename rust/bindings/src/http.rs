//! The http lane of an engine, and checks of its functions' options at registration.

use guerdon_core::clock::Clock;
use guerdon_core::function::Function;
use guerdon_core::outcome::Cell;
use guerdon_http::{AnswerText, HttpFunction, HttpLane, HttpSettings, ParseSettings};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tokio::runtime::Handle;

use crate::config::settings;

/// Raises `ValueError` where the requests of a `Plan.config` can't be made.
#[pyfunction]
pub fn check_http(config: &Bound<'_, PyAny>) -> PyResult<()> {
    settings::<HttpSettings>(config)?.function(&[], &[]).map(drop).map_err(PyValueError::new_err)
}

/// The score in an answer, None where it abstains. A `ValueError` has the reason if there is none.
#[pyfunction]
#[pyo3(signature = (parse, text, *, cut = false, reasoning = None))]
pub fn read_score(parse: &Bound<'_, PyAny>, text: &str, cut: bool, reasoning: Option<&str>) -> PyResult<Option<f64>> {
    let parser = settings::<ParseSettings>(parse)?.parser().map_err(PyValueError::new_err)?;
    match parser.read_answer(AnswerText { text, reasoning, cut }) {
        Ok(Cell::Value(value)) => Ok(Some(value)),
        Ok(Cell::Abstained) => Ok(None),
        Ok(Cell::Invalid(why)) | Err(why) => Err(PyValueError::new_err(why)),
        Ok(Cell::Reported(reported)) => Err(PyValueError::new_err(reported.1)),
    }
}

/// Advice for missing file descriptors.
pub const ALLOW_MORE: &str =
    "allow more (ulimit -n 65536 in the shell that starts it), or lower Limit(concurrency=) of its judges";

/// Returns the lane of these functions, if this process may open as many connections as they need.
pub fn lane(
    runtime: &Handle,
    clock: Clock,
    functions: &[Function],
    specs: Vec<Option<HttpFunction>>,
) -> PyResult<HttpLane> {
    let lane = HttpLane::new(runtime, clock, functions, specs);
    let lane = lane.map_err(|error| PyValueError::new_err(error.to_string()))?;
    lane.check_descriptors().map_err(|error| PyValueError::new_err(format!("{error}: {ALLOW_MORE}")))?;
    Ok(lane)
}
