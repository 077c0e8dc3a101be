//! Reads what a pattern's first group matches: a number, or one of the words given.

use std::collections::BTreeMap;

use guerdon_core::outcome::Cell;
use regex::{Captures, Regex, RegexBuilder};
use regex_automata::Input;
use regex_automata::hybrid::dfa::DFA;

use super::candidates::{Candidate, Unread, Which, choose};
use crate::quote::quoted;

/// The most that a pattern may compile to.
const MOST_BYTES: usize = 1 << 20;

/// A pattern, and the scores of its matches.
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    words: BTreeMap<String, f64>,
    /// The same as an automaton, which tells when a match can't grow any more.
    automaton: Option<std::sync::Arc<DFA>>,
}

impl Pattern {
    /// A pattern in Rust's syntax, which has neither backreferences nor look-around and so no
    /// catastrophic case. If there are no words, a match must be a number.
    pub fn new(pattern: &str, words: BTreeMap<String, f64>) -> Result<Self, String> {
        let built = RegexBuilder::new(pattern).size_limit(MOST_BYTES).build();
        let regex = built.map_err(|error| error.to_string())?;
        let config = DFA::config().unicode_word_boundary(true);
        let automaton = DFA::builder().configure(config).build(pattern).ok().map(std::sync::Arc::new);
        Ok(Self { regex, words, automaton })
    }

    pub fn as_str(&self) -> &str {
        self.regex.as_str()
    }

    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.words.keys().map(String::as_str)
    }

    /// The score of the match that counts; `cut`: the text may go on.
    pub fn read(&self, text: &str, which: Which, cut: bool) -> Result<Candidate, Unread> {
        let certain = cut && which == Which::First && self.first_match_is_final(text);
        let matches = self.regex.captures_iter(text);
        choose(which, matches.map(|found| Candidate::new(self.score(&found), certain)))
    }

    fn score(&self, found: &Captures<'_>) -> Result<Cell, String> {
        let part = found.get(1).or_else(|| found.get(0)).map_or("", |part| part.as_str().trim());
        if self.words.is_empty() {
            let number = part.parse().map_err(|_| format!("no number in the match {}", quoted(part)))?;
            return Ok(Cell::Value(number));
        }
        let words = &self.words;
        let named =
            words.get(part).or_else(|| words.iter().find(|(word, _)| word.eq_ignore_ascii_case(part)).map(|(_, v)| v));
        let value = named.ok_or_else(|| format!("the match {}, which is none of the words given,", quoted(part)))?;
        Ok(Cell::Value(*value))
    }

    /// Returns whether no continuation of the text changes its first match: the automaton has
    /// nothing left to wait for.
    fn first_match_is_final(&self, text: &str) -> bool {
        let Some(automaton) = &self.automaton else { return false };
        let mut cache = automaton.create_cache();
        let Ok(mut state) = automaton.start_state_forward(&mut cache, &Input::new(text)) else { return false };
        for byte in text.bytes() {
            match automaton.next_state(&mut cache, state, byte) {
                Ok(next) if next.is_dead() => return true,
                Ok(next) if !next.is_quit() => state = next,
                _ => return false,
            }
        }
        // It reports a match one byte late.
        let ends = |byte| automaton.next_state(&mut cache, state, byte).is_ok_and(|next| next.is_dead());
        state.is_match() && (0..=u8::MAX).all(ends)
    }
}
