//! Reads the score of an answer whose *form* says that it is the verdict.
//!
//! - A verdict is a sentence of one score and known words, then perhaps an explanation.
//! - With a label ("Score: 7") or a verb ("I give it 7") it may be anywhere, "7/10" in the first or
//!   last sentence, and 7 in the first or last line, by itself.
//! - A possible verdict that can't be read is unclear; other sentences are not looked at.
//! - The last verdict must not be followed by another number of the range, nor by a retraction.

use std::borrow::Cow;

use guerdon_core::outcome::Cell;

use super::candidates::{Candidate, Unread, Which, choose};
use super::range::{Range, is_scale, is_top};
use super::text::{SPACED_HYPHEN, Sentence, Token, phrase, sentences};
use super::vocabulary::{
    BOUNDS, CONDITIONS, NEGATIONS, NUMBERS, UNITS, are_plain, has_any, is_known, names_a_score, retracts, takes_back,
};
use crate::quote::quoted;

/// Form in which a sentence gives a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// "Score: 7".
    Named,
    /// "7/10".
    OfTop,
    /// "7".
    Alone,
}

/// The score that a text gives; `cut`: the text may go on. `label` names scores in its language.
pub fn number(
    text: &str,
    which: Which,
    cut: bool,
    range: Option<Range>,
    label: Option<&str>,
) -> Result<Candidate, Unread> {
    let sentences = sentences(text, cut)?;
    let label = label.map(phrase);
    let mut last = 0;
    let candidates = sentences.iter().enumerate().filter_map(|(at, _)| {
        let reading = reading(&sentences, at, cut, range, label.as_deref())?;
        last = at;
        Some(Candidate::new(reading.map(Cell::Value), cut))
    });
    let found = choose(which, candidates);
    let numbers = |sentence: &&Sentence| sentence.tokens.iter().any(Token::has_digits);
    match found {
        Err(Unread::Missing) => Err(sentences.iter().rev().find(numbers).map_or(Unread::Missing, |sentence| {
            Unread::Unclear(format!("{}, which has words beside the score or more than one,", quoted(&sentence.text)))
        })),
        Ok(_) if which != Which::First => match sentences[last + 1..].iter().find(|later| unsettles(later, range)) {
            Some(later) => Err(Unread::Unclear(format!("{} behind the score", quoted(&later.text)))),
            None => found,
        },
        found => found,
    }
}

/// The score of a text that is one verdict, as within a tag.
pub fn within(text: &str, range: Option<Range>) -> Result<f64, Unread> {
    match sentences(text, false)?.as_slice() {
        [] => Err(Unread::Missing),
        [one] if one.tokens.iter().any(Token::has_digits) => match of_sentence(one, range, None) {
            Some((_, Ok(value))) => Ok(value),
            _ => Err(Unread::Unclear(unclear(one))),
        },
        [one] if one.tokens.len() == 1 => Err(Unread::Missing),
        several => Err(Unread::Unclear(unclear(&several[0]))),
    }
}

/// The score that a text is, with no word beside it.
pub fn plain(text: &str, range: Option<Range>) -> Option<f64> {
    let tokens = phrase(text);
    score(&tokens, range).filter(|(_, _, length)| *length == tokens.len())?.0
}

/// Returns the score of a sentence; `None` where it does not.
fn reading(
    sentences: &[Sentence],
    at: usize,
    cut: bool,
    range: Option<Range>,
    label: Option<&[Token]>,
) -> Option<Result<f64, String>> {
    let sentence = &sentences[at];
    let before = at.checked_sub(1).map(|before| &sentences[before]);
    let heading = sentence.starts_line && before.is_some_and(|before| are_plain(&before.tokens, is_known));
    let (form, value) = of_sentence(sentence, range, label)?;
    let named = form == Form::Named
        || (form == Form::Alone && heading && before.is_some_and(|before| names_a_score(&before.tokens)));
    let line = sentence.starts_line && sentence.ends_line;
    let outermost = at == 0 || (at + 1 == sentences.len() && !cut);
    if !named && !(outermost && (line || form == Form::OfTop)) {
        return None;
    }
    let unfinished = sentence.starts_line && !heading && before.is_some_and(|before| !before.ended);
    if !named && unfinished { Some(Err(unclear(sentence))) } else { Some(value) }
}

/// Returns the form and the score of a sentence, `Err` if the score can't be read.
fn of_sentence(
    sentence: &Sentence,
    range: Option<Range>,
    label: Option<&[Token]>,
) -> Option<(Form, Result<f64, String>)> {
    if sentence.question {
        return None;
    }
    let (tokens, scaled) = without_scales(&sentence.tokens, range);
    if let Some(rest) = label.and_then(|label| tokens.strip_prefix(label)) {
        let sign = usize::from(rest.first().is_some_and(|mark| mark.is_mark(&[':', '=', '→', '—'])));
        let value = score(&rest[sign..], range).filter(|(_, _, length)| sign + length == rest.len());
        let value = value.and_then(|(value, ..)| value);
        let given = rest.iter().any(Token::has_digits);
        return given.then(|| (Form::Named, value.ok_or_else(|| unclear(sentence))));
    }
    let start =
        tokens.iter().position(|token| token.has_digits() || has_any(std::slice::from_ref(token), &[NUMBERS]))?;
    let (before, rest) = tokens.split_at(start);
    if !are_plain(before, is_known) {
        return None;
    }
    let clear = score(rest, range).and_then(|(value, of_top, length)| {
        let rest = &rest[length..];
        let end = rest.iter().position(opens_explanation).unwrap_or(rest.len());
        let (words, explanation) = rest.split_at(end);
        let closed = words.iter().all(|token| match token {
            Token::Mark(mark) => matches!(mark, ')' | '"' | '\'' | '”' | '⟧'),
            _ => are_plain(std::slice::from_ref(token), is_known),
        });
        (closed && explains(explanation)).then_some((value?, of_top, words))
    });
    let alone = |tokens: &[Token]| tokens.iter().all(|token| token.word().is_none());
    match clear {
        Some((value, of_top, words)) => {
            let named = scaled || names_a_score(before) || names_a_score(words);
            let form = match (named, of_top) {
                (true, _) => Form::Named,
                (false, true) => Form::OfTop,
                (false, false) if alone(before) && alone(words) => Form::Alone,
                (false, false) => return None,
            };
            Some((form, Ok(value)))
        }
        None if scaled || names_a_score(before) => Some((Form::Named, Err(unclear(sentence)))),
        None => None,
    }
}

/// A score at the beginning of tokens: its value, `None` where it is not one of the range; with the
/// end of the scale, if it has one; how many tokens it has.
fn score(tokens: &[Token], range: Option<Range>) -> Option<(Option<f64>, bool, usize)> {
    let Token::Number(value) = *tokens.first()? else { return None };
    let is_unit = |at: usize| tokens.get(at).and_then(Token::word).is_some_and(|word| UNITS.contains(&word));
    let is_word = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.is(word));
    let percent = tokens.get(1).is_some_and(|mark| mark.is_mark(&['%']));
    if percent {
        let hundred = range.is_some_and(|range| range.high == 100.0);
        return Some((Some(value).filter(|_| hundred), true, 2));
    }
    let mut length = 1 + usize::from(is_unit(1));
    let closing = tokens.get(length).is_some_and(|mark| mark.is_mark(&['⟧', ')']));
    let joint = length + usize::from(closing);
    let top = if tokens.get(joint).is_some_and(|mark| mark.is_mark(&['/'])) {
        joint + 1
    } else if is_word(joint, "out") && is_word(joint + 1, "of") {
        joint + 2
    } else {
        return Some((Some(value), false, length));
    };
    let Some(Token::Number(of)) = tokens.get(top) else { return Some((None, true, top)) };
    length = top + 1 + usize::from(length == 1 && is_unit(top + 1));
    Some((Some(value).filter(|value| is_top(range, *of) && *value >= 0.0 && value <= of), true, length))
}

/// The tokens without what says how scores are given ("(0-10)", "0 to 10"), and whether it did.
fn without_scales(tokens: &[Token], range: Option<Range>) -> (Cow<'_, [Token]>, bool) {
    let Some(first) = (0..tokens.len()).find(|at| scale(&tokens[*at..], range) > 0) else {
        return (tokens.into(), false); // most sentences: nothing is copied
    };
    let (mut kept, mut at) = (tokens[..first].to_vec(), first);
    while at < tokens.len() {
        let length = scale(&tokens[at..], range);
        if length == 0 {
            kept.push(tokens[at].clone());
        }
        at += length.max(1);
    }
    (kept.into(), true)
}

/// Number of tokens at the beginning that say how scores are given.
fn scale(tokens: &[Token], range: Option<Range>) -> usize {
    let ends = match tokens {
        [Token::Odd(span), ..] => {
            span.split_once(['-', '–']).and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?, 1)))
        }
        [Token::Number(low), to, Token::Number(high), ..] if to.is("to") || to.is_mark(&['—', SPACED_HYPHEN]) => {
            Some((*low, *high, 3))
        }
        _ => None,
    };
    ends.filter(|(low, high, _)| is_scale(range, *low, *high)).map_or(0, |(.., length)| length)
}

/// Returns whether a token is between a verdict and its explanation.
pub fn opens_explanation(token: &Token) -> bool {
    token.is_mark(&[',', ';', '(', '—', SPACED_HYPHEN]) || token.is("because")
}

/// Returns whether an explanation leaves the score as it is.
fn explains(tokens: &[Token]) -> bool {
    let unsure = has_any(tokens, &[NEGATIONS, CONDITIONS, BOUNDS, NUMBERS]) || retracts(tokens);
    !unsure && !tokens.iter().any(Token::has_digits)
}

/// Returns whether a sentence behind a verdict leaves open which score counts.
fn unsettles(sentence: &Sentence, range: Option<Range>) -> bool {
    let range = range.unwrap_or(Range { low: 0.0, high: 100.0 });
    takes_back(sentence)
        || sentence.tokens.iter().any(|token| match token {
            Token::Number(value) => range.holds(*value),
            Token::Odd(text) => text.starts_with(|letter: char| letter.is_ascii_digit()),
            _ => false,
        })
}

fn unclear(sentence: &Sentence) -> String {
    format!("{}, which can be read in more than one way,", quoted(&sentence.text))
}
