//! What a kernel is.

use crate::fault::{Fault, Score, Stop};
use crate::input::{Input, InputForm};

/// A reward function: pure, and called from many threads at a time.
pub trait Kernel: Send + Sync {
    /// What its inputs are, in order; the first is what is scored.
    fn inputs(&self) -> Vec<InputForm>;

    /// The score of a sample; `inputs` are as `inputs()` says.
    fn score(&self, inputs: &[Input<'_>], stop: &dyn Stop) -> Result<Score, Fault>;
}
