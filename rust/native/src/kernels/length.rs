//! Rewards by length.

use std::f64::consts::PI;

use crate::kernels::fault::{Fault, Score, Stop};
use crate::kernels::input::{Input, InputForm};
use crate::kernels::kernel::Kernel;

/// Falls along a cosine from the score of an empty text to that of a text of `max_len` characters;
/// the two scores depend on whether another kernel's score is above 0.
pub struct CosineLength {
    pub correct: Box<dyn Kernel>,
    pub min_value_wrong: f64,
    pub max_value_wrong: f64,
    pub min_value_correct: f64,
    pub max_value_correct: f64,
    pub max_len: f64,
    /// Longer texts count as this long; otherwise the cosine rises again.
    pub clamp: bool,
}

impl Kernel for CosineLength {
    fn inputs(&self) -> Vec<InputForm> {
        self.correct.inputs()
    }

    fn score(&self, inputs: &[Input<'_>], stop: &dyn Stop) -> Result<Score, Fault> {
        let Some(correct) = self.correct.score(inputs, stop)? else { return Ok(None) };
        let length = Input::text(inputs)?.chars().count() as f64;
        let share = length / self.max_len;
        let cosine = (if self.clamp { share.min(1.0) } else { share } * PI).cos();
        let (least, most) = if correct > 0.0 {
            (self.min_value_correct, self.max_value_correct)
        } else {
            (self.max_value_wrong, self.min_value_wrong)
        };
        Ok(Some(least + 0.5 * (most - least) * (1.0 + cosine)))
    }
}

/// Scores 0 up to a number of tokens, -1 above another, and linear between them; its text is that
/// number.
pub struct SoftOverlong {
    pub max_completion_len: f64,
    pub soft_punish_cache: f64,
}

impl Kernel for SoftOverlong {
    fn inputs(&self) -> Vec<InputForm> {
        vec![InputForm::Json]
    }

    fn score(&self, inputs: &[Input<'_>], _stop: &dyn Stop) -> Result<Score, Fault> {
        let length =
            Input::json(inputs, 0)?.parse::<u64>().map_err(|_| Fault::invalid("there is no number of tokens"))?;
        let length = length as f64;
        let free = self.max_completion_len - self.soft_punish_cache;
        Ok(Some(if length <= free {
            0.0
        } else if length <= self.max_completion_len {
            (free - length) / self.soft_punish_cache
        } else {
            -1.0
        }))
    }
}
