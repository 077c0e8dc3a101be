//! Exact match and F1 of answers, as in SQuAD: case, ASCII punctuation, English articles and the
//! amount of white space are ignored.

use std::borrow::Cow;

use crate::kernels::fault::{Fault, Score, Stop};
use crate::kernels::input::{Input, InputForm};
use crate::kernels::kernel::Kernel;
use crate::kernels::matching::{Part, best_of, is_any};
use crate::kernels::python_text::{is_punctuation, is_space, is_word, lower, split};
use crate::kernels::tokens::{TokenNumbers, common_tokens};

const ARTICLES: [&str; 3] = ["a", "an", "the"];

/// Returns a text without ignored parts, with one space between words.
fn normalized(text: &str) -> String {
    if text.is_ascii() {
        return normalized_ascii(text);
    }
    let plain: String = lower(text).chars().filter(|one| !is_punctuation(*one)).collect();
    let (mut kept, mut rest) = (String::with_capacity(plain.len()), plain.as_str());
    while let Some(start) = rest.find(is_word) {
        kept.push_str(&rest[..start]);
        let end = rest[start..].find(|one| !is_word(one)).map_or(rest.len(), |length| start + length);
        let word = &rest[start..end];
        kept.push_str(if ARTICLES.contains(&word) { " " } else { word });
        rest = &rest[end..];
    }
    kept.push_str(rest);
    split(&kept).collect::<Vec<_>>().join(" ")
}

/// Does the same in one pass, for ASCII.
fn normalized_ascii(text: &str) -> String {
    let mut kept = String::with_capacity(text.len() + 1);
    let space = |kept: &mut String| {
        if !kept.is_empty() && !kept.ends_with(' ') {
            kept.push(' ');
        }
    };
    // Beginning of the letters and digits behind the last other character.
    let mut start = 0;
    for one in text.chars().chain([' ']) {
        if one.is_ascii_alphanumeric() {
            kept.push(one.to_ascii_lowercase());
        } else if !is_punctuation(one) {
            if ARTICLES.contains(&&kept[start..]) {
                kept.truncate(start);
                space(&mut kept);
            }
            if is_space(one) {
                space(&mut kept);
            } else {
                kept.push(one);
            }
            start = kept.len();
        }
    }
    kept.truncate(kept.trim_end_matches(' ').len());
    kept
}

/// Scores 1 if a reference equals the answer.
pub struct SquadEm {
    pub part: Part,
}

impl Kernel for SquadEm {
    fn inputs(&self) -> Vec<InputForm> {
        vec![InputForm::Text, InputForm::References]
    }

    fn score(&self, inputs: &[Input<'_>], stop: &dyn Stop) -> Result<Score, Fault> {
        best_of(inputs, &self.part, |text, references| {
            let text = normalized(text);
            is_any(references, stop, |reference| normalized(reference) == text)
        })
    }
}

/// Scores the F1 of the answer's and a reference's words; the best reference counts.
pub struct SquadF1 {
    pub part: Part,
}

/// Returns 2PR / (P + R), counting common words as often as they occur in both.
fn f1(answer: &str, reference: &str) -> f64 {
    let mut numbering = TokenNumbers::new();
    let answer = numbering.numbers(answer.split(' ').filter(|word| !word.is_empty()));
    let reference = numbering.numbers(reference.split(' ').filter(|word| !word.is_empty()));
    if answer.is_empty() || reference.is_empty() {
        return f64::from(u8::from(answer == reference));
    }
    let common = common_tokens(&answer, &reference, numbering.len());
    if common == 0 {
        return 0.0;
    }
    let precision = common as f64 / answer.len() as f64;
    let recall = common as f64 / reference.len() as f64;
    (2.0 * precision * recall) / (precision + recall)
}

impl Kernel for SquadF1 {
    fn inputs(&self) -> Vec<InputForm> {
        vec![InputForm::Text, InputForm::References]
    }

    fn score(&self, inputs: &[Input<'_>], stop: &dyn Stop) -> Result<Score, Fault> {
        best_of(inputs, &self.part, |text, references| {
            let text = normalized(text);
            let best = |best: f64, reference: &Cow<'_, str>| {
                stop.check()?;
                Ok(best.max(f1(&text, &normalized(reference))))
            };
            references.iter().try_fold(0.0, best)
        })
    }
}

#[cfg(test)]
mod tests {
    //! Values of evaluate-v2.0.py, recorded.

    use super::*;

    #[test]
    fn answers_are_normalized() {
        let table = [
            ("The  Eiffel Tower!", "eiffel tower"),
            ("a\u{1c}an the", ""),
            ("the-end of an A.", "theend of"),
            ("théâtre the’ athe", "théâtre ’ athe"),
            ("a\u{300} b", "\u{300} b"),
            ("A_the", "athe"),
            ("x\0the\0the y\x7fa", "x\0 \0 y\x7f"),
            ("a\0 the", "\0"),
        ];
        for (text, expected) in table {
            assert_eq!(normalized(text), expected, "{text:?}");
            // Words with other characters take another path.
            assert_eq!(normalized(&format!("{text} \u{3b1}")), format!("{expected} \u{3b1}").trim_start(), "{text:?}");
        }
    }

    #[test]
    fn words_count_as_often_as_in_both() {
        assert_eq!(f1("b b c", "b c c d"), 2.0 * (2.0 / 3.0) * 0.5 / (2.0 / 3.0 + 0.5));
        assert_eq!((f1("", ""), f1("", "b"), f1("b", ""), f1("b", "c")), (1.0, 0.0, 0.0, 0.0));
    }
}
