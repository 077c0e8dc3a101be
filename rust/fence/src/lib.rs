//! Fences around a process that runs untrusted code: limits on its files, system calls, resources
//! and view of the machine. Independent of Python; the caller forks and runs the programs inside.
//!
//! - Expensive steps are done once, by `Fence::prepare`, in the process that forks; a child pays
//!   system calls only.
//! - `Fence::enter` either puts up each fence that `Fence::layers` names, or fails.
//! - Root is not required. A layer that the machine refuses is left out, with the reason.

#![forbid(unsafe_code)]

mod denied_calls;
mod error;
mod fence;
mod files;
mod identity;
mod layer;
mod limits;
mod namespaces;
mod own_folder;
mod private_root;
mod rules;
mod seccomp;
mod signal_filter;

pub use error::FenceError;
pub use fence::Fence;
pub use layer::{Layer, Layers};
pub use private_root::MakeFixed;
pub use rules::Rules;
