//! The layers of a fence, and which of them this machine allows.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

/// One means of preventing forbidden acts.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// Landlock: files, TCP ports, signals and abstract sockets.
    Landlock,
    /// A seccomp filter, which denies system calls.
    Seccomp,
    /// Limits of resources.
    Limits,
    /// A separate user.
    User,
    /// No capabilities.
    Capabilities,
    /// A name space of processes for each child.
    #[serde(rename = "pid")]
    ProcessNames,
    /// Network, IPC and mount name spaces, and a root with only the readable paths.
    Namespaces,
    /// A size-limited folder in memory.
    Folder,
    /// The first process to be killed when memory runs out.
    #[serde(rename = "oom")]
    OutOfMemory,
}

/// The state of each layer: true and a detail, which may be empty, or false and the reason.
pub type Layers = BTreeMap<Layer, (bool, String)>;

/// Returns a function that explains a refused system call, for the reason of a missing layer.
pub(crate) fn refused(call: &'static str) -> impl Fn(io::Error) -> String {
    move |error| format!("{call}: {error}")
}
