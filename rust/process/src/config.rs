//! Configuration of the process lane.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use guerdon_core::function::FunctionId;
use guerdon_core::settings::path;
use serde::{Deserialize, Deserializer};

use crate::output::{Sink, standard_error};
use crate::recycle::Recycle;
use crate::resource_limits::ResourceLimits;
use crate::shared_page::CALLS;

/// Settings of the lane for its processes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessConfig {
    /// The interpreter.
    #[serde(deserialize_with = "path")]
    pub python: PathBuf,
    /// The folder of `_zygote.py`.
    #[serde(deserialize_with = "path")]
    pub worker_dir: PathBuf,
    /// The functions, as `guerdon._functions.serialization.serialized_functions` pickles them.
    #[serde(with = "serde_bytes")]
    pub serialized_functions: Vec<u8>,
    /// Workers that share the work.
    pub workers: usize,
    /// By function; a function beyond the end has none.
    #[serde(skip)]
    pub resource_limits: Vec<ResourceLimits>,
    /// Bounds at which a worker is replaced although it could go on.
    pub recycle: Recycle,
    /// All of the zygote's environment, and so of the workers'; `None`: this process's.
    #[serde(deserialize_with = "environment")]
    pub environment: Option<Vec<(OsString, OsString)>>,
    /// Destination of the lines that workers print.
    #[serde(skip, default = "standard_error")]
    pub sink: Sink,
}

fn environment<'de, D: Deserializer<'de>>(given: D) -> Result<Option<Vec<(OsString, OsString)>>, D::Error> {
    let pairs = Vec::<(Vec<u8>, Vec<u8>)>::deserialize(given)?.into_iter();
    Ok(Some(pairs.map(|(name, value)| (OsString::from_vec(name), OsString::from_vec(value))).collect()))
}

impl ProcessConfig {
    /// Makes a configuration without limits: workers are replaced only at their end, have this
    /// process's environment, and print to standard error.
    #[must_use]
    pub fn new(python: PathBuf, worker_dir: PathBuf, serialized_functions: Vec<u8>, workers: usize) -> Self {
        Self {
            python,
            worker_dir,
            serialized_functions,
            workers,
            resource_limits: Vec::new(),
            recycle: Recycle::default(),
            environment: None,
            sink: standard_error(),
        }
    }

    /// The most calls in one frame of a function whose frames may have several.
    #[must_use]
    pub fn frame_calls(&self, function: FunctionId) -> usize {
        // Outputs of consecutive calls can be separated only if each is alone in its frame
        // (`meter`).
        if self.limits_of(function).max_output.is_some() { 1 } else { self.recycle.frame_calls(CALLS) }
    }

    pub(crate) fn limits_of(&self, function: FunctionId) -> &ResourceLimits {
        static NONE: ResourceLimits = ResourceLimits { memory_limit: None, max_output: None, environment: Vec::new() };
        self.resource_limits.get(function).unwrap_or(&NONE)
    }
}
