//! Interface of a kernel.

use crate::kernels::fault::{Fault, Score, Stop};
use crate::kernels::input::{Input, InputForm};

/// A reward function: pure, and called from many threads at a time.
pub trait Kernel: Send + Sync {
    /// Returns the forms of its inputs, in order; the first is scored.
    fn inputs(&self) -> Vec<InputForm>;

    /// Returns the score of a sample; `inputs` have the forms of `inputs()`.
    fn score(&self, inputs: &[Input<'_>], stop: &dyn Stop) -> Result<Score, Fault>;
}

/// A kernel whose faults name the column concerned.
pub struct OfColumns {
    pub kernel: Box<dyn Kernel>,
    /// Names of its inputs.
    pub columns: Vec<String>,
}

impl Kernel for OfColumns {
    fn inputs(&self) -> Vec<InputForm> {
        self.kernel.inputs()
    }

    fn score(&self, inputs: &[Input<'_>], stop: &dyn Stop) -> Result<Score, Fault> {
        self.kernel.score(inputs, stop).map_err(|fault| match fault {
            Fault::Input(place, why) => match self.columns.get(place) {
                Some(column) => Fault::Invalid(format!("column '{column}': {why}")),
                None => Fault::Invalid(why),
            },
            other => other,
        })
    }
}
