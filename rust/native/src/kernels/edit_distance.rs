//! Similarity by edit distance: 1 - distance / length of the longer text, in characters.

use crate::kernels::bit_parallel::edit_distance;
use crate::kernels::fault::{Fault, Score, Stop};
use crate::kernels::input::{Input, InputForm};
use crate::kernels::kernel::Kernel;
use crate::kernels::matching::{Part, best_of};
use crate::kernels::tokens::TokenNumbers;

/// See the module.
pub struct EditDistance {
    pub part: Part,
}

fn similarity(text: &str, reference: &str, stop: &dyn Stop) -> Result<f64, Fault> {
    let mut numbering = TokenNumbers::new();
    let (text, reference) = (numbering.numbers(text.chars()), numbering.numbers(reference.chars()));
    // A common prefix and suffix cost nothing.
    let start = text.iter().zip(&reference).take_while(|(one, other)| one == other).count();
    let (one, other) = (&text[start..], &reference[start..]);
    let end = one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count();
    let (one, other) = (&one[..one.len() - end], &other[..other.len() - end]);
    let distance = edit_distance(one, other, numbering.len(), stop)?;
    let longer = text.len().max(reference.len());
    Ok(1.0 - if longer == 0 { 0.0 } else { distance as f64 / longer as f64 })
}

impl Kernel for EditDistance {
    fn inputs(&self) -> Vec<InputForm> {
        vec![InputForm::Text, InputForm::References]
    }

    fn score(&self, inputs: &[Input<'_>], stop: &dyn Stop) -> Result<Score, Fault> {
        best_of(inputs, &self.part, |text, references| {
            let mut similarities = references.iter().map(|reference| similarity(text, reference, stop));
            similarities.try_fold(0.0, |best: f64, one| Ok(best.max(one?)))
        })
    }
}
