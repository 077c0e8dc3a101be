//! Finds the numbers of an answer that may be scores, in order.
//!
//! - A number is a token of its own: not the 4 of "GPT-4", the 72 of "Qwen2.5-72B", the 2 of "2nd".
//! - What a token or its surroundings leave open is a candidate, too: one that can't be read.

use guerdon_core::outcome::Cell;

use super::ahead::Ahead;
use super::candidates::{Candidate, Unread, Which, choose};
use super::digits::with_ascii_digits;
use super::list_items::{Item, ListItems};
use super::number_context::{After, Before, after, and_another, before};
use super::number_shape::{Shape, joins, may_be_thousands, shape};
use super::range::{Range, is_scale, is_top};
use super::words::{is_denied, is_word};
use crate::quote::quoted;

/// The score of a text that is read as a number.
pub fn number(text: &str, which: Which, range: Option<Range>) -> Result<Candidate, Unread> {
    let text = with_ascii_digits(text);
    choose(which, Numbers::of(&text, range))
}

/// The candidates of a text.
struct Numbers<'a> {
    text: &'a str,
    at: usize,
    range: Option<Range>,
    items: ListItems,
    /// Nothing so far depends on what may follow the text.
    certain: bool,
}

impl<'a> Numbers<'a> {
    fn of(text: &'a str, range: Option<Range>) -> Self {
        Self { text, at: 0, range, items: ListItems::of(text), certain: true }
    }

    /// Where the next token starts, a word or a number.
    fn token_start(&self) -> Option<usize> {
        let mut last = self.text[..self.at].chars().next_back();
        for (offset, letter) in self.text[self.at..].char_indices() {
            let at = self.at + offset;
            let fraction = letter == '.'
                && last.is_none_or(|last| last != '.' && !is_word(last))
                && self.text[at + 1..].starts_with(|next: char| next.is_ascii_digit());
            if is_word(letter) || fraction {
                return Some(at);
            }
            last = Some(letter);
        }
        None
    }

    /// What a token means, `None` if nothing; `ahead` stands at its end and is left behind what
    /// belongs to it.
    fn reading(&self, start: usize, ahead: &mut Ahead<'_>) -> Option<Reading> {
        let token = &self.text[start..ahead.at];
        if !token.contains(char::is_numeric) {
            return None;
        }
        let shape = shape(token);
        if shape == Shape::Name {
            return None;
        }
        let before = before(self.text, start);
        if before == Before::Label {
            return None;
        }
        match self.items.at(start) {
            Some(Item::Number) => return None,
            Some(Item::Unclear) => return Some(Reading::Unclear),
            None => {}
        }
        match shape {
            Shape::Name => None,
            _ if before == Before::Unclear || is_denied(&self.text[..start]) => Some(Reading::Unclear),
            Shape::Unclear => Some(Reading::Unclear),
            Shape::Span(low, high) => self.span(start, low, high),
            Shape::Fraction(value, top) => match after(ahead) {
                After::Percent | After::Unclear | After::Of(_) | After::To(_) => Some(Reading::Unclear),
                _ => Some(self.of_top(signed(before, value), top)),
            },
            Shape::Number(value) => {
                let mut follows = after(ahead);
                if before == Before::Between && follows == After::Nothing {
                    follows = and_another(ahead);
                }
                let thousands = may_be_thousands(token, value)
                    && self.range.is_none_or(|range| range.holds(value * 1000.0) || !range.holds(value));
                self.number(start, signed(before, value), before == Before::Top, follows)
                    .map(|reading| if thousands { Reading::Unclear } else { reading })
            }
        }
    }

    fn number(&self, start: usize, value: f64, is_top_mark: bool, follows: After) -> Option<Reading> {
        match follows {
            After::Label => None,
            After::Unclear => Some(Reading::Unclear),
            After::Of(_) | After::To(_) | After::Percent if is_top_mark => Some(Reading::Unclear),
            After::Of(top) => Some(self.of_top(value, top)),
            After::To(high) => self.span(start, value, high),
            After::Percent if self.range.is_some_and(|range| range.high == 100.0) => {
                Some(Reading::Number(value, Some(100.0)))
            }
            After::Percent => Some(Reading::Unclear),
            After::Top | After::Nothing if is_top_mark || follows == After::Top => {
                (!is_top(self.range, value)).then_some(Reading::Unclear)
            }
            After::Top | After::Nothing => Some(Reading::Number(value, None)),
        }
    }

    /// "7-8" is unclear, "0-10" may say how scores are given.
    fn span(&self, start: usize, low: f64, high: f64) -> Option<Reading> {
        let left = self.text[..start].trim_end();
        let words = last_bytes(left, 24).to_lowercase();
        let announced = left.ends_with('(') || words.contains("scale") || words.contains("range");
        (!is_scale(self.range, low, high, announced)).then_some(Reading::Unclear)
    }

    /// "9/10" is 9 if scores count up to 10.
    fn of_top(&self, value: f64, top: f64) -> Reading {
        if is_top(self.range, top) && value <= top { Reading::Number(value, Some(top)) } else { Reading::Unclear }
    }
}

/// What a token means.
enum Reading {
    Number(f64, Option<f64>),
    Unclear,
}

impl Iterator for Numbers<'_> {
    type Item = Candidate;

    fn next(&mut self) -> Option<Candidate> {
        loop {
            let start = self.token_start()?;
            let mut ahead = Ahead::new(self.text, start);
            pass_token(&mut ahead);
            let end = ahead.at;
            let reading = self.reading(start, &mut ahead);
            self.at = ahead.at.max(end);
            self.certain &= !ahead.met_end;
            let (reading, top) = match reading {
                None => continue,
                Some(Reading::Number(value, top)) => (Ok(Cell::Value(value)), top),
                Some(Reading::Unclear) => (Err(unclear(self.text, start, self.at)), None),
            };
            return Some(Candidate { reading, top, certain: self.certain });
        }
    }
}

/// Passes a token, whose first letter or point `ahead` stands at.
fn pass_token(ahead: &mut Ahead<'_>) {
    let Some(mut last) = ahead.next() else { return };
    while let Some(letter) = ahead.peek() {
        if is_word(letter) {
            last = letter;
            ahead.next();
            continue;
        }
        // Whether it joins depends on what follows only if it ever does.
        let joint = ahead.at;
        if !joins(last, letter, '0') {
            return;
        }
        ahead.next();
        if !ahead.peek().is_some_and(|after| is_word(after) && joins(last, letter, after)) {
            ahead.at = joint;
            return;
        }
    }
}

fn signed(before: Before, value: f64) -> f64 {
    if before == Before::Minus { -value } else { value }
}

/// A token with its surroundings, for a reason.
fn unclear(text: &str, start: usize, end: usize) -> String {
    let left = last_bytes(&text[..start], 12);
    let mut to = (end + 6).min(text.len());
    while !text.is_char_boundary(to) {
        to += 1;
    }
    format!("{}, which can be read in more than one way,", quoted(format!("{left}{}", &text[start..to]).trim()))
}

/// The end of a text, so many bytes at most.
fn last_bytes(text: &str, most: usize) -> &str {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}
