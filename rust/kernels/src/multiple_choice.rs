//! Multiple choice: the letter after the first "Answer:".

use memchr::memchr2_iter;

use crate::fault::{Fault, Score, Stop};
use crate::input::{Input, InputForm};
use crate::kernel::Kernel;
use crate::matching::{Part, best_of, is_any};
use crate::python_text::is_letter_ignoring_case;

/// 1 where the letter that simple-evals' `(?i)Answer[ \t]*:[ \t]*\$?([A-D])\$?` finds first is a
/// reference.
pub struct MultipleChoice {
    /// The last letter of the choices, which begin with A; upper case.
    pub last: char,
}

impl MultipleChoice {
    fn found(&self, text: &str) -> Option<char> {
        let is_blank = |one: char| matches!(one, ' ' | '\t');
        // No other letter counts as an A.
        memchr2_iter(b'a', b'A', text.as_bytes()).find_map(|at| {
            let mut rest = text[at..].chars();
            let is_word =
                "answer".chars().all(|letter| rest.next().is_some_and(|one| is_letter_ignoring_case(one, letter)));
            if !is_word {
                return None;
            }
            let rest = rest.as_str().trim_start_matches(is_blank).strip_prefix(':')?.trim_start_matches(is_blank);
            let choice = rest.strip_prefix('$').unwrap_or(rest).chars().next()?;
            self.is_choice(choice).then_some(choice)
        })
    }

    fn is_choice(&self, one: char) -> bool {
        let mut letters = ('a'..='z').take_while(|letter| *letter <= self.last.to_ascii_lowercase());
        letters.any(|letter| is_letter_ignoring_case(one, letter))
    }
}

impl Kernel for MultipleChoice {
    fn inputs(&self) -> Vec<InputForm> {
        vec![InputForm::Text, InputForm::References]
    }

    fn score(&self, inputs: &[Input<'_>], stop: &dyn Stop) -> Result<Score, Fault> {
        best_of(inputs, &Part::default(), |text, references| {
            stop.check()?;
            let Some(found) = self.found(text).map(String::from) else { return Ok(0.0) };
            is_any(references, stop, |reference| reference == found)
        })
    }
}

#[cfg(test)]
mod tests {
    //! What the pattern finds, recorded with CPython's `re`.

    use super::*;

    #[test]
    fn the_first_answer_counts() {
        let kernel = MultipleChoice { last: 'D' };
        let table = [
            ("Answer: B", Some('B')),
            ("answer\t:$c$ Answer: A", Some('c')),
            ("Answer: E Answer: D", Some('D')),
            ("AnſWER:A", Some('A')),
            ("Answer is B", None),
            ("Answer: $$B", None),
            ("Answer:\nB", None),
            ("Answer: ", None),
        ];
        for (text, expected) in table {
            assert_eq!(kernel.found(text), expected, "{text:?}");
        }
    }
}
