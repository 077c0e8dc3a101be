//! What the calls of a batch are made of. The core passes it from the caller to the lanes and never looks inside.

use std::any::Any;

use crate::function::FunctionId;

/// The arguments of a batch's calls, captured when it was submitted.
pub trait Payload: Send + Sync + 'static {
    /// The keyword names of the values of a function's calls (of its `finish_group`, if `finish`); `None` means by position.
    fn names(&self, function: FunctionId, finish: bool) -> Option<&[String]>;

    /// The values of these samples in wire form (`process::wire`), for lanes that run elsewhere. Takes no lock that Python code can hold.
    fn encode(&self, function: FunctionId, finish: bool, samples: &[u32], out: &mut Vec<u8>);

    /// About how many bytes `encode` writes for one sample.
    fn bytes(&self, function: FunctionId, sample: u32) -> usize;

    /// For lanes of the same crate as the payload, which take the values as they are.
    fn as_any(&self) -> &dyn Any;
}
