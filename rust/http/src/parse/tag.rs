//! Reads the verdict within `<name>…</name>`, in a sentence of words that a verdict has.

use std::ops::Range as Span;

use guerdon_core::outcome::Cell;

use super::candidates::{Candidate, Unread, Which, choose};
use super::number::{opens_explanation, within};
use super::range::Range;
use super::text::{PLACES, Sentence, Token, sentences};
use super::vocabulary::{are_plain, is_known, retracts};
use crate::quote::quoted;

/// The longest attributes of a tag.
const LONGEST_ATTRIBUTES: usize = 200;

/// The score in the tags of this name; `cut`: the text may go on.
pub fn tagged(text: &str, name: &str, which: Which, cut: bool, range: Option<Range>) -> Result<Candidate, Unread> {
    let text = &text.replace(|letter| PLACES.contains(&letter), " ");
    let (mut insides, mut around, mut from, mut open) = (Vec::new(), String::new(), 0, false);
    for content in contents(text, name) {
        let inside = content.inside;
        open |= !content.closed && inside.trim_start().starts_with(char::is_numeric);
        // An empty tag is a mention of the format.
        let empty = !inside.chars().any(char::is_alphanumeric);
        let Some(place) = mark(insides.len()).filter(|_| content.closed && !empty) else { continue };
        around.push_str(&text[from..content.span.start]);
        around.push(place);
        from = content.span.end;
        insides.push(inside);
    }
    around.push_str(&text[from..]);
    let (sentences, mut last) = (sentences(&without_tags(&around), cut)?, 0);
    let mut candidates = Vec::new();
    for (at, sentence) in sentences.iter().enumerate() {
        for token in &sentence.tokens {
            let Some(inside) = place(token).and_then(|place| insides.get(place)) else { continue };
            let reading = match within(inside, range) {
                Ok(value) if stands_alone(sentence, name) => Ok(Cell::Value(value)),
                Ok(_) => Err(format!("<{name}>{inside}</{name}> within other words")),
                Err(Unread::Missing) => Err(format!("no number in <{name}>")),
                Err(Unread::Unclear(why)) => Err(why),
            };
            candidates.push(Candidate::new(reading, cut));
            last = at;
        }
    }
    if open {
        candidates.push(Candidate::new(Err(format!("a <{name}> that is not closed")), false));
    }
    let found = choose(which, candidates.into_iter())?;
    let taken_back = sentences.iter().skip(last + 1).find(|later| retracts(&later.tokens));
    match taken_back.filter(|_| which != Which::First) {
        Some(later) => Err(Unread::Unclear(format!("{} behind the score", quoted(&later.text)))),
        None => Ok(found),
    }
}

/// The mark in the place of the content of this number.
fn mark(number: usize) -> Option<char> {
    let code = u32::from(*PLACES.start()) + u32::try_from(number).ok()?;
    char::from_u32(code).filter(|mark| PLACES.contains(mark))
}

/// Returns the index of the content that a token replaces.
fn place(token: &Token) -> Option<usize> {
    let Token::Mark(mark) = *token else { return None };
    u32::from(mark).checked_sub(u32::from(*PLACES.start()))?.try_into().ok()
}

/// Returns whether the words beside a tag are those of a verdict or the tag's name.
fn stands_alone(sentence: &Sentence, name: &str) -> bool {
    let name = name.to_lowercase();
    let known = |word: &str| is_known(word) || name.split(['_', '-']).any(|part| part == word);
    let is_place = |token: &Token| matches!(token, Token::Mark(mark) if PLACES.contains(mark));
    let first = sentence.tokens.iter().position(is_place).unwrap_or(0);
    let (before, rest) = sentence.tokens.split_at(first);
    let end = rest.iter().position(opens_explanation).unwrap_or(rest.len());
    let words: Vec<Token> = rest[..end].iter().filter(|token| !is_place(token)).cloned().collect();
    !sentence.question && are_plain(before, known) && are_plain(&words, known) && !retracts(&rest[end..])
}

/// A text with a new line in the place of each tag: the contents of other tags are separate.
fn without_tags(text: &str) -> String {
    let (mut kept, mut from) = (String::with_capacity(text.len()), 0);
    for (start, _) in text.match_indices('<') {
        let rest = text[start + 1..].trim_start_matches('/');
        let end = rest.char_indices().take(LONGEST_ATTRIBUTES).find(|(_, letter)| matches!(letter, '<' | '>'));
        let Some((end, '>')) = end else { continue };
        let name = rest[..end].split_whitespace().next().unwrap_or_default();
        if start >= from
            && name.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && !matches!(name, "b" | "strong")
        {
            kept.push_str(&text[from..start]);
            kept.push('\n');
            from = text.len() - rest.len() + end + 1;
        }
    }
    kept.push_str(&text[from..]);
    kept
}

/// Content of a tag, or the text behind the last tag that is not closed.
pub struct Content<'a> {
    pub inside: &'a str,
    pub closed: bool,
    /// The tags included.
    span: Span<usize>,
}

/// The contents of the tags of a name, in order.
pub fn contents<'a>(text: &'a str, name: &str) -> impl Iterator<Item = Content<'a>> {
    let lower = text.to_ascii_lowercase();
    let (opening, closing) = (format!("<{}", name.to_ascii_lowercase()), format!("</{}>", name.to_ascii_lowercase()));
    let (mut from, mut over) = (0, false);
    std::iter::from_fn(move || {
        while !over {
            let close = lower[from..].find(&closing).map(|at| from + at);
            over = close.is_none();
            let end = close.unwrap_or(lower.len());
            let tag = last_opening(&lower[from..end], &opening).map(|tag| (from + tag.start, from + tag.end));
            from = end + if close.is_some() { closing.len() } else { 0 };
            if let Some((outer, start)) = tag {
                return Some(Content { inside: &text[start..end], closed: close.is_some(), span: outer..from });
            }
        }
        None
    })
}

/// Returns the place of the last opening tag.
fn last_opening(text: &str, opening: &str) -> Option<Span<usize>> {
    text.rmatch_indices(opening).find_map(|(at, _)| {
        let rest = &text[at + opening.len()..];
        let mut attributes = rest.len().min(LONGEST_ATTRIBUTES);
        while !rest.is_char_boundary(attributes) {
            attributes -= 1;
        }
        let end = rest[..attributes].find('>')?;
        let attributes = &rest[..end];
        let is_tag =
            attributes.is_empty() || (attributes.starts_with(char::is_whitespace) && !attributes.contains('<'));
        is_tag.then_some(at..at + opening.len() + end + 1)
    })
}
