//! The layers a fence is made of, and which of them this machine allows.
//!
//! Each layer is held or missing, never both; a missing one has a reason in words.

use std::collections::BTreeMap;
use std::io;

/// One way of keeping a process from forbidden acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// Landlock: files, TCP ports, signals and abstract sockets.
    Landlock,
    /// A seccomp filter: system calls that are refused.
    Seccomp,
    /// Limits of resources.
    Limits,
    /// A separate user.
    User,
    /// No capabilities.
    Capabilities,
    /// A name space of processes for each child.
    ProcessNames,
    /// Network, IPC and mount name spaces, and a root with nothing but readable paths.
    Namespaces,
    /// A size-limited folder in memory.
    Folder,
    /// The first to be killed where memory runs out.
    OutOfMemory,
}

impl Layer {
    pub const ALL: [Self; 9] = [
        Self::Landlock,
        Self::Seccomp,
        Self::Limits,
        Self::User,
        Self::Capabilities,
        Self::ProcessNames,
        Self::Namespaces,
        Self::Folder,
        Self::OutOfMemory,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::Limits => "limits",
            Self::User => "user",
            Self::Capabilities => "capabilities",
            Self::ProcessNames => "pid",
            Self::Namespaces => "namespaces",
            Self::Folder => "folder",
            Self::OutOfMemory => "oom",
        }
    }

    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layer| layer.name() == name)
    }
}

/// Layers that hold, and the reasons why others don't.
#[derive(Clone, Debug, Default)]
pub struct Layers(BTreeMap<Layer, Result<String, String>>);

impl Layers {
    /// The layer holds; `detail` may be empty.
    pub(crate) fn held(&mut self, layer: Layer, detail: impl Into<String>) {
        self.0.insert(layer, Ok(detail.into()));
    }

    pub(crate) fn missing(&mut self, layer: Layer, reason: impl Into<String>) {
        self.0.insert(layer, Err(reason.into()));
    }

    pub fn holds(&self, layer: Layer) -> bool {
        matches!(self.0.get(&layer), Some(Ok(_)))
    }

    pub fn iter(&self) -> impl Iterator<Item = (Layer, Result<&str, &str>)> {
        self.0.iter().map(|(&layer, state)| (layer, state.as_deref().map_err(String::as_str)))
    }
}

/// Returns the meaning of a refused system call, for the reason of a missing layer.
pub(crate) fn refused(call: &str, error: io::Error) -> String {
    format!("{call}: {error}")
}
