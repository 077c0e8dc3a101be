//! Words and times of a configuration in Python.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::de::value::Error;
use serde::de::{DeserializeOwned, IntoDeserializer};

/// The value of an enum that has this name.
pub fn word<T: DeserializeOwned>(word: &str) -> PyResult<T> {
    T::deserialize(word.into_deserializer()).map_err(|error: Error| PyValueError::new_err(error.to_string()))
}

/// A value of an enum, by its name.
pub struct Word<T>(pub T);

impl<'a, 'py, T: DeserializeOwned> FromPyObject<'a, 'py> for Word<T> {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        word(&given.extract::<String>()?).map(Self)
    }
}

/// A time in seconds.
#[derive(Clone, Copy)]
pub struct Seconds(pub Duration);

impl<'a, 'py> FromPyObject<'a, 'py> for Seconds {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let seconds: f64 = given.extract()?;
        let time = Duration::try_from_secs_f64(seconds);
        time.map(Self).map_err(|_| PyValueError::new_err(format!("{seconds} is no time in seconds")))
    }
}
