//! Keywords of IFEval, which its checkers use as patterns of Python's `re`. Supported are plain
//! words, with dots as wildcards.
//!
//! - A search takes a text's length times the keyword's, so it checks whether to stop.

use crate::kernels::fault::{Fault, Stop};
use crate::kernels::python_text::{is_letter_ignoring_case, is_word};

/// Most characters that are compared between two checks whether to stop.
const UNTIL_ASKED: usize = 200_000;

/// A keyword, character by character, compared without regard to case.
pub struct Keyword(Vec<Piece>);

enum Piece {
    /// A dot, which matches any character except a line feed.
    Any,
    Character(char),
}

/// Returns whether a character matches itself in a pattern.
pub const fn is_plain(one: char) -> bool {
    one.is_ascii() && !matches!(one, '.' | '\\' | '^' | '$' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|')
}

impl Keyword {
    /// Reads a pattern; `None` if it is more than plain words, so that only `re` finds its matches.
    pub fn new(pattern: &str) -> Option<Self> {
        let piece = |one: char| match one {
            '.' => Some(Piece::Any),
            _ => is_plain(one).then(|| Piece::Character(one.to_ascii_lowercase())),
        };
        pattern.chars().map(piece).collect::<Option<_>>().map(Self)
    }

    fn is_at(&self, text: &[char], at: usize) -> bool {
        let matches = |(piece, one): (&Piece, &char)| match piece {
            Piece::Any => *one != '\n',
            Piece::Character(letter) => is_letter_ignoring_case(*one, *letter),
        };
        text.len() - at >= self.0.len() && self.0.iter().zip(&text[at..]).all(matches)
    }

    /// Returns its first position at or after `from`.
    fn find(&self, text: &[char], from: usize, stop: &dyn Stop) -> Result<Option<usize>, Fault> {
        let each = (UNTIL_ASKED / self.0.len().max(1)).max(1);
        for at in from..=text.len() {
            if at % each == 0 {
                stop.check()?;
            }
            if self.is_at(text, at) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Returns whether it occurs in a text.
    pub fn is_in(&self, text: &[char], stop: &dyn Stop) -> Result<bool, Fault> {
        Ok(self.find(text, 0, stop)?.is_some())
    }

    /// Returns whether it occurs there between word boundaries (`\b`).
    pub fn is_word_in(&self, text: &[char], stop: &dyn Stop) -> Result<bool, Fault> {
        let is_word_at = |at: Option<usize>| at.and_then(|at| text.get(at)).copied().is_some_and(is_word);
        let is_edge = |at: usize| is_word_at(at.checked_sub(1)) != is_word_at(Some(at));
        let mut from = 0;
        while let Some(at) = self.find(text, from, stop)? {
            if is_edge(at) && is_edge(at + self.0.len()) {
                return Ok(true);
            }
            from = at + 1;
        }
        Ok(false)
    }

    /// Returns the number of its occurrences, without overlaps.
    pub fn count(&self, text: &[char], stop: &dyn Stop) -> Result<usize, Fault> {
        let (mut from, mut count) = (0, 0);
        while from < text.len()
            && let Some(at) = self.find(text, from, stop)?
        {
            count += 1;
            from = at + self.0.len().max(1);
        }
        Ok(count)
    }
}
