//! Records of calls for Python.

use std::collections::BTreeMap;

use guerdon_core::report::{Extra, Usage};
use pyo3::prelude::*;
use pyo3::types::PyList;

/// Counts by name. A float has whole numbers enough for any bill.
#[expect(clippy::cast_precision_loss, reason = "up to 9e15 tokens")]
pub fn usage(usage: Usage) -> BTreeMap<&'static str, f64> {
    BTreeMap::from([
        ("requests", usage.requests as f64),
        ("unknown", usage.unknown as f64),
        ("prompt_tokens", usage.prompt_tokens as f64),
        ("cached_tokens", usage.cached_tokens as f64),
        ("completion_tokens", usage.completion_tokens as f64),
        ("reasoning_tokens", usage.reasoning_tokens as f64),
        ("cost", usage.cost),
    ])
}

/// A named value: None, a float, a str or a list of them.
pub fn value(py: Python<'_>, extra: Extra) -> PyResult<Bound<'_, PyAny>> {
    Ok(match extra {
        Extra::None => py.None().into_bound(py),
        Extra::Number(number) => number.into_pyobject(py)?.into_any(),
        Extra::Text(text) => text.into_pyobject(py)?.into_any(),
        Extra::List(values) => {
            let values = values.into_iter().map(|one| value(py, one)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, values)?.into_any()
        }
    })
}
