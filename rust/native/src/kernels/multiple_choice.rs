//! Multiple choice: the letter after the last "Answer:" or in the last box, or the whole answer.
//!
//! - Marks of Markdown and LaTeX around the letter are skipped: `**Answer:** $\boxed{B}$`.
//! - The first letter of a word does not count, nor a letter next to another: `A or B`.

use memchr::memmem;

use crate::kernels::fault::{Fault, Score, Stop};
use crate::kernels::input::{Input, InputForm};
use crate::kernels::kernel::Kernel;
use crate::kernels::matching::{Part, best_of, is_any};

const WORD: &[u8] = b"answer";
const BOX: &[u8] = b"\\boxed{";
/// A box around a letter is shorter; longer boxes would be searched repeatedly.
const LONGEST_BOX: usize = 64;
const THOUGHT: &str = "</think>";
/// Characters that may enclose a letter.
const MARKS: [char; 13] = ['*', '_', '$', '(', '[', '{', ')', ']', '}', '"', '\'', '`', '\\'];
/// Commands and words that may precede it.
const BEFORE: [&str; 8] = ["boxed", "text", "textbf", "mathrm", "mathbf", "option", "choice", "letter"];

/// Scores 1 if the letter that the completion gives as its answer is a reference.
pub struct MultipleChoice {
    /// The last letter of the choices (upper case), which begin with A.
    pub last: char,
}

impl MultipleChoice {
    /// Returns the letter of the last answer that is a choice, in upper case.
    fn found(&self, text: &str) -> Option<char> {
        let text = text.rsplit_once(THOUGHT).map_or(text, |(_, answer)| answer);
        let lower = text.to_ascii_lowercase();
        let named = memmem::rfind_iter(lower.as_bytes(), WORD)
            .find_map(|at| self.letter(&text[at + WORD.len()..]).map(|letter| (at, letter)));
        let boxed = memmem::rfind_iter(text.as_bytes(), BOX).find_map(|at| {
            let inside = &text[at + BOX.len()..];
            let end = inside.bytes().take(LONGEST_BOX).position(|one| one == b'}')?;
            let inside = inside[..end].trim_start().trim_start_matches('\\');
            let inside = BEFORE.iter().find_map(|word| inside.strip_prefix(*word)?.strip_prefix('{')).unwrap_or(inside);
            self.whole(inside).map(|letter| (at, letter))
        });
        let last = named.max(boxed).map(|(_, letter)| letter);
        last.or_else(|| self.whole(text))
    }

    /// Returns the letter in a text of one letter, with marks and words before it.
    fn alone(&self, text: &str) -> Option<char> {
        let is_blank = |one: char| MARKS.contains(&one) || one.is_whitespace();
        let rest = text.trim_end_matches(|one: char| is_blank(one) || one == '.');
        let letter = rest.chars().next_back()?;
        let before = &rest[..rest.len() - letter.len_utf8()];
        let is_word = |word: &str| word.is_empty() || BEFORE.iter().any(|one| word.eq_ignore_ascii_case(one));
        let is_apart = before.chars().next_back().is_none_or(is_blank);
        let choice = letter.to_ascii_uppercase();
        (is_apart && before.len() <= LONGEST_BOX && before.split(is_blank).all(is_word) && self.is_choice(choice))
            .then_some(choice)
    }

    /// Returns the letter of an answer of one line that is a choice: `B`, `**B.** Paris`, `B)
    /// Paris`.
    fn whole(&self, text: &str) -> Option<char> {
        let line = text.trim();
        if line.contains('\n') {
            return None;
        }
        self.alone(line).or_else(|| {
            let rest = line.trim_start_matches(['*', '_', '(', '[']);
            let letter = rest.chars().next()?;
            let choice = letter.to_ascii_uppercase();
            let behind = rest[letter.len_utf8()..].trim_start_matches(['*', '_']);
            // A colon does not count: "A: I think so" is an answer after a question.
            let end = behind.chars().next().filter(|one| matches!(one, ')' | ']' | '.'))?;
            let words = behind[1..].trim_start_matches(['*', '_']);
            let is_label = words.starts_with(char::is_whitespace) && !self.goes_on(words) && !self.lists(words, end);
            (is_label && self.is_choice(choice)).then_some(choice)
        })
    }

    /// Returns whether another choice begins within a line, as in `Paris B) Rome`; `end` is the
    /// mark after letters.
    fn lists(&self, words: &str, end: char) -> bool {
        words.split_whitespace().any(|word| {
            let mut letters = word.trim_matches(['*', '_', '(', '[']).chars();
            let is_choice = letters.next().is_some_and(|one| self.is_choice(one));
            is_choice && letters.next() == Some(end) && letters.next().is_none()
        })
    }

    /// Returns the letter at the beginning of a text, after the word "answer".
    fn letter(&self, text: &str) -> Option<char> {
        let is_mark = |one: char| MARKS.contains(&one);
        let rest = text.trim_start_matches(|one| is_mark(one) || matches!(one, ' ' | '\t'));
        let colon = rest.strip_prefix([':', '：', '>']);
        let is = || rest.get(..2).filter(|word| word.eq_ignore_ascii_case("is")).map(|_| &rest[2..]);
        let mut rest = colon.or_else(is)?.trim_start_matches(':');
        loop {
            rest = rest.trim_start_matches(|one: char| is_mark(one) || one.is_whitespace());
            // No word of BEFORE has more than eight letters.
            let end = rest.bytes().take(9).take_while(u8::is_ascii_alphabetic).count();
            let word = &rest[..end];
            if !BEFORE.iter().any(|before| word.eq_ignore_ascii_case(before)) {
                break;
            }
            rest = &rest[word.len()..];
        }
        let mut ahead = rest.chars();
        let letter = ahead.next()?;
        let choice = letter.to_ascii_uppercase();
        let is_alone = self.is_choice(choice) && self.ends(ahead.as_str(), letter, colon.is_some());
        is_alone.then_some(choice)
    }

    /// Returns whether a letter is still the answer, given the text after it.
    fn ends(&self, behind: &str, letter: char, colon: bool) -> bool {
        let mut next = behind.chars();
        match next.next() {
            None => return true,
            Some(one) if one.is_alphanumeric() || matches!(one, '_' | '+' | '#' | '?') => return false,
            Some('-' | '\'' | '’') if next.next().is_some_and(char::is_alphanumeric) => return false,
            Some(_) => {}
        }
        let rest = behind.trim_start_matches(|one: char| MARKS.contains(&one));
        let is_word = rest.starts_with(' ') && rest.trim_start().starts_with(char::is_alphabetic);
        // "answer: a dog", "The answer is A matter of taste".
        if is_word
            && rest.len() == behind.len()
            && (letter.is_ascii_lowercase() || (!colon && matches!(letter, 'A' | 'I')))
        {
            return false;
        }
        !self.goes_on(rest)
    }

    /// Returns whether another choice follows.
    fn goes_on(&self, behind: &str) -> bool {
        let is_blank = |one: char| MARKS.contains(&one) || matches!(one, ' ' | '\t');
        let rest = behind.trim_start_matches(is_blank);
        let other = rest.strip_prefix([',', '/', '&']).unwrap_or(rest).trim_start_matches(is_blank);
        let word = ["or ", "and ", "OR ", "AND "].iter().find_map(|word| other.strip_prefix(*word));
        if word.is_none() && other.len() == rest.len() {
            return false;
        }
        let mut next = word.unwrap_or(other).trim_start_matches(is_blank).chars();
        let is_other = next.next().is_some_and(|one| one.is_ascii_uppercase() && self.is_choice(one));
        let behind = next.as_str();
        let is_word = behind.starts_with(|one: char| one.is_alphanumeric() || one == '\'');
        // "B, A is too small" means B; "A, B or C" means none.
        let sentence = behind.trim_start();
        let is_sentence = sentence.starts_with(|one: char| one.is_lowercase())
            && !["or ", "and "].iter().any(|word| sentence.starts_with(word));
        is_other && !is_word && !is_sentence
    }

    fn is_choice(&self, one: char) -> bool {
        ('A'..=self.last).contains(&one)
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
            is_any(references, stop, |reference| reference.trim().eq_ignore_ascii_case(&found))
        })
    }
}

#[cfg(test)]
mod tests {
    //! Returns the letter of the answer.

    use super::*;

    #[test]
    fn the_last_answer_counts_and_no_word() {
        let kernel = MultipleChoice { last: 'D' };
        let table = [
            ("Answer: B", Some('B')),
            ("**Answer:** B", Some('B')),
            ("**Answer**: B.", Some('B')),
            ("**Answer: B**", Some('B')),
            ("Answer: (B)", Some('B')),
            ("Answer: (B) because it is", Some('B')),
            ("answer: b", Some('B')),
            ("answer\t:$c$ Answer: A", Some('A')),
            ("Answer: C? No.\nAnswer: D", Some('D')),
            ("Answer: D Answer: E", Some('D')),
            ("Answer: $\\boxed{\\text{B}}$", Some('B')),
            ("### Final Answer\nThe answer is C.", Some('C')),
            ("The answer is (A) since it fits", Some('A')),
            ("The correct answer is B because", Some('B')),
            ("Answer:\nB", Some('B')),
            ("Answer: Option B", Some('B')),
            ("Answer: B) 12 apples", Some('B')),
            ("Answer: A, because 2 < 3", Some('A')),
            ("Answer: A because 2 < 3", Some('A')),
            ("<answer>B</answer>", Some('B')),
            ("Answer: B, and a dog", Some('B')),
            ("Answer: B, A is too small", Some('B')),
            ("Answer: A, B or C", None),
            ("Answer：B", Some('B')),
            ("Answer: Because...", None),
            ("Answer: Diabetes", None),
            ("answer: a dog", None),
            ("The answer is a dog", None),
            ("The answer is A matter of taste", None),
            ("Answer: C++", None),
            ("Answer: D'accord", None),
            ("Answer: C-section", None),
            ("Answer: C?", None),
            ("Answer: A or B", None),
            ("Answer: A, B", None),
            ("Answer: (A) and (B)", None),
            ("Answer: A/B", None),
            ("The answer is not B", None),
            ("Answer B", None),
            ("Answer: E", None),
            ("Answer: ", None),
            ("B", Some('B')),
            (" (b) ", Some('B')),
            ("**B.**", Some('B')),
            ("Option B", Some('B')),
            ("B) Paris", Some('B')),
            ("(B) Paris", Some('B')),
            ("**B.** Paris", Some('B')),
            ("B: Paris", None),
            ("<think>Maybe A.</think>\n\nB", Some('B')),
            ("It is \\boxed{B}.", Some('B')),
            ("$\\boxed{\\text{B}}$", Some('B')),
            ("$\\boxed{\\text{(B)}}$", Some('B')),
            ("\\boxed{A} is wrong: \\boxed{B}", Some('B')),
            ("Answer: A\nNo: \\boxed{B}", Some('B')),
            ("\\boxed{A}\nAnswer: B", Some('B')),
            ("\\boxed{AB}", None),
            ("\\boxed{A, B}", None),
            ("\\boxed{Absent}", None),
            ("A dog", None),
            ("B is right or wrong", None),
            ("A) or B)", None),
            ("A.B", None),
            ("E", None),
            ("A\nB", None),
            ("It may be B", None),
            ("<think>Perhaps the answer is A. No.</think>\n\nB", Some('B')),
            ("<think>So \\boxed{A}?</think>\n\nB", Some('B')),
            ("<think>The answer is A.</think>\n\nI can't say.", None),
            ("A: C", None),
            ("A: The capital is B", None),
            ("A: I don't know", None),
            ("A) Paris B) Rome C) Oslo D) Bonn", None),
            ("A. Paris", Some('A')),
            ("A. Paris B. Rome", None),
            ("B) A dog", Some('B')),
            ("B) Washington D.C.", Some('B')),
            ("(C) I do, A. Smith", Some('C')),
            ("\\boxed{B. Paris}", Some('B')),
            ("\\boxed{\\text{(B) Paris}}", Some('B')),
            ("\\boxed{\\text{Option B}}", Some('B')),
            ("\\boxed{A} is wrong: \\boxed{B. Paris}", Some('B')),
            ("\\boxed{x + B}", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(kernel.found(text), expected, "{text:?}");
        }
    }
}
