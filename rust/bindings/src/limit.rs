//! `limit`, as Python says it.

use std::path::PathBuf;

use guerdon_core::limits::{Limit, Rules};
use pyo3::prelude::*;

/// Requests and tokens a minute, tokens of a call, and a key with its file.
#[derive(FromPyObject)]
pub struct LimitArg(Option<f64>, Option<f64>, Option<f64>, Option<(String, PathBuf)>);

impl LimitArg {
    pub fn limit(self, concurrency: Option<usize>) -> Limit {
        let Self(rpm, tpm, tokens, key) = self;
        Limit { rules: Rules { rpm, tpm, concurrency }, key: key.map(|(key, path)| (key.into(), path)), tokens }
    }
}
