//! Keywords of IFEval, which its checkers take as patterns of Python's `re`: those that are plain
//! words, but for a dot.

use crate::python_text::{is_letter_ignoring_case, is_word};

/// A keyword without regard to case, character by character.
pub struct Keyword(Vec<Piece>);

enum Piece {
    /// A dot: any character but a line feed.
    Any,
    Character(char),
}

/// Whether a character of a pattern means itself.
pub const fn is_plain(one: char) -> bool {
    one.is_ascii() && !matches!(one, '.' | '\\' | '^' | '$' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|')
}

impl Keyword {
    /// `None`: more than plain words, so that only `re` knows what it matches.
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

    /// Whether it stands in a text.
    pub fn is_in(&self, text: &[char]) -> bool {
        (0..=text.len()).any(|at| self.is_at(text, at))
    }

    /// Whether it stands there with the edge of a word (`\b`) on both sides.
    pub fn is_word_in(&self, text: &[char]) -> bool {
        let is_word_at = |at: Option<usize>| at.and_then(|at| text.get(at)).copied().is_some_and(is_word);
        let is_edge = |at: usize| is_word_at(at.checked_sub(1)) != is_word_at(Some(at));
        (0..=text.len()).any(|at| self.is_at(text, at) && is_edge(at) && is_edge(at + self.0.len()))
    }

    /// How often it stands there, without overlaps.
    pub fn count(&self, text: &[char]) -> usize {
        let (mut at, mut count) = (0, 0);
        while at < text.len() {
            let is_here = self.is_at(text, at);
            count += usize::from(is_here);
            at += if is_here { self.0.len().max(1) } else { 1 };
        }
        count
    }
}
