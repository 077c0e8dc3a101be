//! Repetition penalty: the share of n-grams that occurred before, times the penalty.

use crate::kernels::fault::{Fault, Score, Stop};
use crate::kernels::input::{Input, InputForm};
use crate::kernels::kernel::Kernel;
use crate::kernels::python_text::{lower, split};
use crate::kernels::tokens::{TokenNumbers, distinct_ngrams};

/// Counts n-grams of token ids (TRL), or of words in lower case (open-r1).
pub struct RepetitionPenalty {
    pub of_words: bool,
    pub ngram_size: usize,
    pub max_penalty: f64,
}

impl RepetitionPenalty {
    /// Returns the share of repeated n-grams; `None` if the text is shorter than an n-gram.
    fn repeated(&self, tokens: &[u32], stop: &dyn Stop) -> Result<Option<f64>, Fault> {
        let total = (tokens.len() + 1).saturating_sub(self.ngram_size);
        if total == 0 {
            return Ok(None);
        }
        Ok(Some(1.0 - distinct_ngrams(tokens, self.ngram_size, stop)? as f64 / total as f64))
    }
}

impl Kernel for RepetitionPenalty {
    fn inputs(&self) -> Vec<InputForm> {
        vec![if self.of_words { InputForm::Text } else { InputForm::Ids }]
    }

    fn score(&self, inputs: &[Input<'_>], stop: &dyn Stop) -> Result<Score, Fault> {
        let repeated = if self.of_words {
            let text = lower(Input::text(inputs)?);
            self.repeated(&TokenNumbers::new().numbers(split(&text)), stop)?
        } else {
            self.repeated(Input::ids(inputs)?, stop)?
        };
        Ok(Some(repeated.map_or(0.0, |share| if share == 0.0 { 0.0 } else { share * self.max_penalty })))
    }
}

#[cfg(test)]
mod tests {
    //! Long n-grams of a long text, which take as long as both are.

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn long_ngrams_can_be_stopped() {
        let kernel = RepetitionPenalty { of_words: false, ngram_size: 50_000, max_penalty: -1.0 };
        let inputs = [Input::Ids((0..2_000_000).map(|id| id % 7).collect())];
        let asked = AtomicUsize::new(0);
        let stop = || asked.fetch_add(1, Ordering::Relaxed) == 3;
        assert_eq!(kernel.score(&inputs, &stop), Err(Fault::Stopped));
        assert_eq!(asked.into_inner(), 4);
    }
}
