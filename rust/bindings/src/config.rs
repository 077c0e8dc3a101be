//! Configuration of functions: part of a dict from the package, of which each crate takes its part.
//!
//! - The package has checked it. A dict of another form is our own mistake, reported as a
//!   `RuntimeError`.
//! - A `ValueError` has the faults that only the engine can find, such as an unusable certificate.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use guerdon_cache::OutcomeStore;
use guerdon_core::compose::Composite;
use guerdon_core::function::Function;
use guerdon_core::outcome_cache::CachePolicy;
use guerdon_core::settings::path;
use guerdon_core::spending::Spending;
use guerdon_http::{Callback, HttpFunction, HttpSettings};
use guerdon_native::kernels::{self, Kernel};
use guerdon_process::ResourceLimits;
use pyo3::exceptions::{PyRuntimeError, PyUnicodeError, PyValueError};
use pyo3::prelude::*;
use pythonize::Depythonizer;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::compose::composite;
use crate::lane_kind::LaneName;

/// Reads a configuration.
pub fn settings<T: DeserializeOwned>(given: &Bound<'_, PyAny>) -> PyResult<T> {
    serde_path_to_error::deserialize(&mut Depythonizer::from_object(given)).map_err(|error| {
        let path = error.path().to_string();
        let error = PyErr::from(error.into_inner());
        if error.is_instance_of::<PyUnicodeError>(given.py()) {
            // A text of the user that has half a surrogate.
            return PyValueError::new_err(format!("{path}: {}", error.value(given.py())));
        }
        let why = error.value(given.py());
        PyRuntimeError::new_err(format!("the engine refuses its configuration at {path}: {why}"))
    })
}

/// One reward function, as the engine must know it: the dict of `FunctionSpec.config`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionSettings {
    pub lane: LaneName,
    pub function: Function,
    pub resource_limits: ResourceLimits,
    /// Event loop that runs it; functions with the same name share one.
    #[serde(rename = "loop")]
    pub event_loop: Option<String>,
    /// Requests of its calls, on the http lane.
    http: Option<HttpSettings>,
    /// Calls of members that each call makes, on the compose lane.
    #[serde(default, deserialize_with = "composite")]
    pub compose: Option<Composite>,
    /// True if parsers of the user's read the answers of its members.
    #[serde(default)]
    parsed: bool,
    /// Kernel that scores, on the native lane.
    kernel: Option<KernelSettings>,
    pub cache: Option<CacheSettings>,
    /// True if the nodes of the engine may run a function of the thread or asyncio lane.
    #[serde(default)]
    pub anywhere: bool,
}

/// A kernel and its options as a JSON object, and names of its columns.
#[derive(Deserialize)]
struct KernelSettings(String, Vec<String>);

/// Folder for the outcomes of a function.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSettings {
    #[serde(deserialize_with = "path")]
    folder: PathBuf,
    size: u64,
    version: [u8; 32],
}

/// The open cache folders of an engine.
pub type Stores = BTreeMap<PathBuf, Arc<OutcomeStore>>;

/// Opens each folder once. Waits for the disk.
pub fn open_stores(functions: &[FunctionSettings]) -> Stores {
    let mut stores = Stores::new();
    for CacheSettings { folder, size, .. } in functions.iter().filter_map(|one| one.cache.as_ref()) {
        stores.entry(folder.clone()).or_insert_with(|| Arc::new(OutcomeStore::open(folder, *size)));
    }
    stores
}

impl FunctionSettings {
    /// Returns the function, on the lane with this index.
    pub fn function(&self, lane: usize, stores: &Stores) -> Function {
        let store = |cache: &CacheSettings| {
            stores.get(&cache.folder).map(|store| CachePolicy { store: store.clone(), version: cache.version })
        };
        Function {
            lane,
            cache: self.cache.as_ref().and_then(store),
            member_calls: self.compose.as_ref().map_or(0, Composite::calls) * if self.parsed { 2 } else { 1 },
            ..self.function.clone()
        }
    }

    /// Makes its requests.
    pub fn requests(&self, cap: Option<&Arc<Spending>>, callbacks: &[Callback]) -> PyResult<Option<HttpFunction>> {
        let caps = |own: Option<Arc<Spending>>| own.into_iter().chain(cap.cloned()).collect::<Vec<_>>();
        let http = self.http.as_ref().map(|http| http.function(&caps(http.own_cap()), callbacks));
        http.transpose().map_err(|why| self.wrong(&why))
    }

    /// Makes its kernel.
    pub fn kernel(&self) -> PyResult<Option<Arc<dyn Kernel>>> {
        let Some(KernelSettings(spec, columns)) = &self.kernel else { return Ok(None) };
        let kernel = kernels::kernel(spec, columns.clone()).map_err(|error| self.wrong(&error.to_string()))?;
        Ok(Some(kernel.into()))
    }

    fn wrong(&self, why: &str) -> PyErr {
        PyValueError::new_err(format!("reward function '{}': {why}", self.function.name))
    }
}
