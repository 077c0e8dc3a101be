//! Repetition penalty: the share of n-grams that came before, times the penalty.

use crate::fault::{Fault, Score, Stop};
use crate::input::{Input, InputForm};
use crate::kernel::Kernel;
use crate::python_text::{lower, split};
use crate::tokens::{Numbering, distinct_ngrams};

/// Of token ids (TRL), or of words in lower case (open-r1).
pub struct RepetitionPenalty {
    pub of_words: bool,
    pub ngram_size: usize,
    pub max_penalty: f64,
}

impl RepetitionPenalty {
    /// The share of repeated n-grams; `None` where there are fewer tokens than an n-gram has.
    fn repeated(&self, tokens: &[u32]) -> Option<f64> {
        let total = (tokens.len() + 1).checked_sub(self.ngram_size).filter(|total| *total > 0)?;
        Some(1.0 - distinct_ngrams(tokens, self.ngram_size) as f64 / total as f64)
    }
}

impl Kernel for RepetitionPenalty {
    fn inputs(&self) -> Vec<InputForm> {
        vec![if self.of_words { InputForm::Text } else { InputForm::Ids }]
    }

    fn score(&self, inputs: &[Input<'_>], _stop: &dyn Stop) -> Result<Score, Fault> {
        let repeated = if self.of_words {
            let text = lower(Input::text(inputs)?);
            self.repeated(&Numbering::new().numbers(split(&text)))
        } else {
            self.repeated(Input::ids(inputs)?)
        };
        Ok(Some(repeated.map_or(0.0, |share| if share == 0.0 { 0.0 } else { share * self.max_penalty })))
    }
}
