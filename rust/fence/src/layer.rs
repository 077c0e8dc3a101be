//! The layers of a fence, and which of them this machine allows.
//!
//! Each layer is held or missing, never both; a missing one has a reason as text.

use std::collections::BTreeMap;
use std::io;

/// One means of preventing forbidden acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    ProcessNames,
    /// Network, IPC and mount name spaces, and a root with only the readable paths.
    Namespaces,
    /// A size-limited folder in memory.
    Folder,
    /// The first process to be killed when memory runs out.
    OutOfMemory,
}

/// Each with its name in Python.
const NAMES: [(Layer, &str); 9] = [
    (Layer::Landlock, "landlock"),
    (Layer::Seccomp, "seccomp"),
    (Layer::Limits, "limits"),
    (Layer::User, "user"),
    (Layer::Capabilities, "capabilities"),
    (Layer::ProcessNames, "pid"),
    (Layer::Namespaces, "namespaces"),
    (Layer::Folder, "folder"),
    (Layer::OutOfMemory, "oom"),
];

impl Layer {
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(layer, _)| *layer == self).map_or("", |(_, name)| name)
    }

    pub fn by_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(layer, _)| *layer)
    }
}

/// Layers that hold, and the reasons why others don't.
#[derive(Clone, Debug, Default)]
pub struct Layers(BTreeMap<Layer, Result<String, String>>);

impl Layers {
    /// Records a layer as held, with a detail that may be empty, or as missing, with a reason.
    pub(crate) fn settle(&mut self, layer: Layer, state: Result<String, String>) {
        self.0.insert(layer, state);
    }

    pub fn holds(&self, layer: Layer) -> bool {
        matches!(self.0.get(&layer), Some(Ok(_)))
    }

    pub fn iter(&self) -> impl Iterator<Item = (Layer, Result<&str, &str>)> {
        self.0.iter().map(|(&layer, state)| (layer, state.as_deref().map_err(String::as_str)))
    }
}

/// Returns a function that explains a refused system call, for the reason of a missing layer.
pub(crate) fn refused(call: &'static str) -> impl Fn(io::Error) -> String {
    move |error| format!("{call}: {error}")
}
