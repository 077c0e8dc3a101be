//! Reads "yes" or "no" where it is the verdict: not the "no" of "no errors", not the "yes" of
//! "I can't say yes".

use guerdon_core::outcome::Cell;

use super::ahead::Ahead;
use super::candidates::{Candidate, Unread, Which, choose};
use super::words::{is_blank, is_mark, is_negated, is_word};

/// 1 for "yes", 0 for "no".
pub fn yes_no(text: &str, which: Which) -> Result<Candidate, Unread> {
    choose(which, YesNoWords { text, at: 0, certain: true })
}

struct YesNoWords<'a> {
    text: &'a str,
    at: usize,
    certain: bool,
}

impl Iterator for YesNoWords<'_> {
    type Item = Candidate;

    fn next(&mut self) -> Option<Candidate> {
        loop {
            let mut ahead = Ahead::new(self.text, self.at);
            let start = {
                ahead.skip(|letter| !is_part(letter));
                ahead.at
            };
            ahead.skip(is_part);
            let word = &self.text[start..ahead.at];
            if word.is_empty() {
                return None;
            }
            self.at = ahead.at;
            let yes = word.eq_ignore_ascii_case("yes");
            if !yes && !word.eq_ignore_ascii_case("no") {
                continue;
            }
            if is_choice(&mut ahead, if yes { "no" } else { "yes" }) {
                self.at = ahead.at;
                self.certain &= !ahead.met_end;
                continue;
            }
            let ends = ends_clause(&mut ahead, yes);
            if !yes && !ends && follows_word(&self.text[..start]) {
                self.certain &= !ahead.met_end;
                continue; // "there are no errors"
            }
            let clear = !is_negated(&self.text[..start]) && ends;
            self.certain &= !ahead.met_end;
            let reading = if clear {
                Ok(Cell::Value(f64::from(u8::from(yes))))
            } else {
                Err(format!("{word:?} within a sentence, which may not be the verdict,"))
            };
            return Some(Candidate::new(reading, self.certain));
        }
    }
}

/// Whether a letter is part of a word, the hyphen of "no-one" included.
fn is_part(letter: char) -> bool {
    is_word(letter) || matches!(letter, '-' | '\'' | '’')
}

/// Passes "/no" or "or no", as in "Answer yes or no".
fn is_choice(ahead: &mut Ahead<'_>, other: &str) -> bool {
    let end = ahead.at;
    let loose = |letter: char| is_blank(letter) || is_mark(letter);
    ahead.skip(loose);
    if ahead.eat("/") || ahead.eat("|") || ahead.eat("or ") {
        ahead.skip(loose);
        if ahead.eat(other) && !ahead.peek().is_some_and(is_part) {
            return true;
        }
    }
    ahead.at = end;
    false
}

/// Whether a word of the same clause stands before.
fn follows_word(before: &str) -> bool {
    before.strip_suffix(is_blank).is_some_and(|before| before.trim_end_matches(is_blank).ends_with(is_part))
}

/// Whether the word ends a clause; behind "yes" the sentence may go on.
fn ends_clause(ahead: &mut Ahead<'_>, yes: bool) -> bool {
    ahead.skip(is_mark);
    match ahead.peek() {
        None | Some('\n' | '\r' | ',' | ';' | ':' | '!' | '—' | '–' | '<' | '|' | '，' | '。' | '！') => true,
        Some('.') => {
            // "No. 7" is a number.
            ahead.next();
            ahead.skip(is_blank);
            yes || !ahead.peek().is_some_and(char::is_numeric)
        }
        Some(letter) if is_blank(letter) => {
            ahead.skip(|letter| is_blank(letter) || is_mark(letter));
            match ahead.peek() {
                Some(letter) if is_word(letter) => yes && !ahead.eat("or ") && !ahead.eat("and "),
                Some('/' | '=' | '?') => false,
                _ => true,
            }
        }
        Some(_) => false,
    }
}
