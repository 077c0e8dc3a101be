//! Checks that a text has the form of a reasoned answer.

use crate::kernels::fault::{Fault, Score, Stop};
use crate::kernels::input::{Input, InputForm};
use crate::kernels::kernel::Kernel;

/// Scores 1 for a text that starts with `<think>`, has `</think>` at least once, and has no other
/// `<think>`, like TRL's `^<think>(?!.*<think>)(.*?)</think>.*$`.
pub struct ThinkFormat;

impl Kernel for ThinkFormat {
    fn inputs(&self) -> Vec<InputForm> {
        vec![InputForm::Text]
    }

    fn score(&self, inputs: &[Input<'_>], _stop: &dyn Stop) -> Result<Score, Fault> {
        let thought = Input::text(inputs)?.strip_prefix("<think>");
        let is_formed = thought.is_some_and(|rest| !rest.contains("<think>") && rest.contains("</think>"));
        Ok(Some(f64::from(u8::from(is_formed))))
    }
}

/// Scores the share of these texts that occur in the text exactly once.
pub struct TagCount {
    pub tags: Vec<String>,
}

impl Kernel for TagCount {
    fn inputs(&self) -> Vec<InputForm> {
        vec![InputForm::Text]
    }

    fn score(&self, inputs: &[Input<'_>], _stop: &dyn Stop) -> Result<Score, Fault> {
        let text = Input::text(inputs)?;
        let once = self.tags.iter().filter(|tag| text.matches(tag.as_str()).take(2).count() == 1).count();
        Ok(Some(once as f64 / self.tags.len() as f64))
    }
}
