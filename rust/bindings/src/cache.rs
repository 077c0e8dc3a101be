//! `OutcomeStore`: a cache folder, as Python names it.

use std::path::PathBuf;
use std::sync::Arc;

use guerdon_cache::OutcomeStore;
use pyo3::prelude::*;

use crate::gil;

/// The outcomes in one folder, opened.
#[pyclass(frozen, module = "guerdon._native", name = "OutcomeStore")]
pub struct PyOutcomeStore {
    pub store: Arc<OutcomeStore>,
}

#[pymethods]
impl PyOutcomeStore {
    #[new]
    fn new(py: Python<'_>, folder: PathBuf, size: u64) -> Self {
        Self { store: Arc::new(gil::detached(py, || OutcomeStore::open(&folder, size))) }
    }
}
