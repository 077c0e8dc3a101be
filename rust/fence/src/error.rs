//! `FenceError`: an error of the system, or of a crate for its fences.

use std::io;

use thiserror::Error;

/// Why a fence could not be put up.
#[derive(Debug, Error)]
pub enum FenceError {
    #[error("{0}: {1}")]
    System(&'static str, #[source] io::Error),
    #[error("landlock: {0}")]
    Landlock(#[from] landlock::RulesetError),
    #[error("seccomp: {0}")]
    Seccomp(#[from] seccompiler::Error),
    #[error("seccomp: {0}")]
    Compile(#[from] seccompiler::BackendError),
}
