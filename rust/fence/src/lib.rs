//! Fences around a process that runs code nobody vouches for: what it may read, call, use up and
//! see. Knows no Python; forks, and the programs inside, are the caller's.
//!
//! - Expensive steps are done once, by `Fence::prepare`, in the process that forks; a child pays
//!   system calls only.
//! - `Fence::enter` either puts up each fence that `Fence::layers` names, or fails.
//! - Nothing here needs root. A layer that the machine refuses is left out, with the reason.

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
