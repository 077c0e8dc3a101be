//! Reads which of several labels an answer chose; "yes" and "no" are two of them.
//!
//! A label counts as a separate clause at the beginning or the end of a sentence: alone, behind
//! "Winner:", "the verdict is", "I choose" or ", so", and before an explanation.

use guerdon_core::outcome::Cell;

use super::candidates::{Candidate, Unread, Which, choose};
use super::number::opens_explanation;
use super::text::{Sentence, Token, phrase, sentences};
use super::vocabulary::{
    BEING, CONCESSIONS, CONCLUDING, CONDITIONS, are_plain, chooses, has_any, is_noun, may_announce, retracts,
    takes_back,
};
use crate::quote::quoted;

/// Replaces a label.
const LABEL: char = '\u{E000}';

/// Labels and their scores.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The longest first.
    labels: Vec<Label>,
    yes_no: bool,
}

#[derive(Clone, Debug)]
struct Label {
    text: String,
    tokens: Vec<Token>,
    value: f64,
}

impl Choice {
    pub fn new(labels: Vec<(String, f64)>) -> Self {
        let label = |(text, value): (String, f64)| Label { tokens: phrase(&text), text, value };
        let mut labels: Vec<Label> = labels.into_iter().map(label).collect();
        labels.sort_by_key(|label| std::cmp::Reverse(label.text.len()));
        Self { labels, yes_no: false }
    }

    /// 1 for "yes", 0 for "no". An answer is as clear with the one as with the other.
    pub fn yes_no() -> Self {
        Self { yes_no: true, ..Self::new(vec![("yes".to_owned(), 1.0), ("no".to_owned(), 0.0)]) }
    }

    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().map(|label| label.text.as_str())
    }

    /// The score of the label that the text chose; `cut`: the text may go on.
    pub fn read(&self, text: &str, which: Which, cut: bool) -> Result<Candidate, Unread> {
        let same = self.labels.iter().find(|label| label.text.to_lowercase() == text.trim().to_lowercase());
        if let Some(label) = same.filter(|_| !cut) {
            return Ok(Candidate::new(Ok(Cell::Value(label.value)), false));
        }
        let (sentences, mut last, mut passed) = (sentences(text, cut)?, 0, false);
        let candidates = sentences.iter().enumerate().filter_map(|(at, sentence)| {
            let (tokens, values) = self.marked(&sentence.tokens);
            passed |= !values.is_empty();
            let reading = self.chosen(sentence, &tokens, &values)?;
            last = at;
            Some(Candidate::new(reading.map(Cell::Value), cut))
        });
        let found = choose(which, candidates.collect::<Vec<_>>().into_iter());
        match found {
            Err(Unread::Missing) if passed => {
                Err(Unread::Unclear("labels within sentences only, none of them as a verdict,".to_owned()))
            }
            Ok(_) if which != Which::First => match sentences[last + 1..].iter().find(|later| takes_back(later)) {
                Some(later) => Err(Unread::Unclear(format!("{} behind the verdict", quoted(&later.text)))),
                None => found,
            },
            found => found,
        }
    }

    /// Tokens with labels as one mark each, and their scores in order.
    fn marked(&self, tokens: &[Token]) -> (Vec<Token>, Vec<f64>) {
        let (mut kept, mut values, mut at) = (Vec::with_capacity(tokens.len()), Vec::new(), 0);
        while at < tokens.len() {
            let rest = &tokens[at..];
            if self.yes_no && both(rest) {
                at += 3;
            } else if let Some(label) = self.labels.iter().find(|label| label.stands_at(rest)) {
                kept.push(Token::Mark(LABEL));
                values.push(label.value);
                at += label.tokens.len();
            } else {
                kept.push(rest[0].clone());
                at += 1;
            }
        }
        (kept, values)
    }

    /// The score of the label that a sentence chooses; `Err` where it may choose it, or may not.
    fn chosen(&self, sentence: &Sentence, tokens: &[Token], values: &[f64]) -> Option<Result<f64, String>> {
        if sentence.question {
            return None;
        }
        let first = tokens.iter().position(is_label)?;
        let last = tokens.iter().rposition(is_label)?;
        [(first, values.first()), (last, values.last())]
            .into_iter()
            .find_map(|(at, value)| self.clause(sentence, tokens, at, *value?))
    }

    fn clause(&self, sentence: &Sentence, tokens: &[Token], at: usize, value: f64) -> Option<Result<f64, String>> {
        let unclear = || Err(format!("{}, which can be read in more than one way,", quoted(&sentence.text)));
        let unsure = |tokens: &[Token]| {
            let conceded = self.yes_no && has_any(tokens, &[CONCESSIONS]);
            conceded || has_any(tokens, &[CONDITIONS]) || retracts(tokens)
        };
        let (before, rest) = (&tokens[..at], &tokens[at + 1..]);
        let closing = rest.iter().take_while(|token| token.is_mark(&['⟧', ')', '"', '\'', '”'])).count();
        let rest = &rest[closing..];
        if !rest.first().is_none_or(opens_explanation) {
            // "No errors were found", and so "Yes errors were found".
            return (self.yes_no && before.is_empty()).then(unclear);
        }
        let lead = before.iter().rposition(|token| token.is_mark(&[',', ';', '—']));
        if !announces(before) {
            let (lead, clause) = before.split_at(lead? + 1);
            let concludes = clause.first().and_then(Token::word).is_some_and(|word| CONCLUDING.contains(&word));
            if !announces(clause) || !(concludes || clause.iter().any(|token| token.word().is_some())) {
                return None;
            }
            if unsure(&lead[..lead.len() - 1]) {
                return Some(unclear());
            }
        }
        let another = rest.iter().find(|token| is_label(token) || token.word().is_some()).is_some_and(is_label);
        if another || unsure(rest) { Some(unclear()) } else { Some(Ok(value)) }
    }
}

impl Label {
    /// A single capital counts as it is written: "a" is a word.
    fn stands_at(&self, tokens: &[Token]) -> bool {
        let same = |(wanted, found): (&Token, &Token)| match (wanted, found) {
            (Token::Word(wanted, as_written), Token::Word(found, written)) => {
                wanted == found && (as_written.chars().count() > 1 || as_written == written)
            }
            (wanted, found) => wanted == found,
        };
        let length = self.tokens.len();
        length > 0 && tokens.len() >= length && self.tokens.iter().zip(tokens).all(same)
    }
}

/// "yes/no" and "yes or no", which choose nothing.
fn both(tokens: &[Token]) -> bool {
    let is = |at: usize, words: [&str; 2]| words.iter().any(|word| tokens.get(at).is_some_and(|token| token.is(word)));
    let joined = tokens.get(1).is_some_and(|joint| joint.is("or") || joint.is_mark(&['/']));
    joined && is(0, ["yes", "no"]) && is(2, ["yes", "no"])
}

fn is_label(token: &Token) -> bool {
    token.is_mark(&[LABEL])
}

/// Returns whether a clause says that the label behind it is the verdict.
fn announces(clause: &[Token]) -> bool {
    let opening = |token: &&Token| token.is_mark(&['⟦', '(', '"', '\'', '“']);
    let trimmed = |tokens: &[Token]| tokens.len() - tokens.iter().rev().take_while(opening).count();
    let mut clause_end = trimmed(clause);
    if clause[..clause_end].last().and_then(Token::word).is_some_and(is_noun) {
        clause_end = trimmed(&clause[..clause_end - 1]);
    }
    let words = &clause[..clause_end];
    let Some((last, ahead)) = words.split_last() else { return true };
    let announcing = match last {
        Token::Mark(mark) => matches!(mark, ':' | '=' | '→' | '—' | ',') && (*mark != ',' || concludes(ahead)),
        Token::Word(word, _) => {
            let word = word.as_str();
            let with = matches!(word, "with" | "for") && ahead.last().and_then(Token::word).is_some_and(chooses);
            with || chooses(word) || BEING.contains(&word) || CONCLUDING.contains(&word)
        }
        _ => false,
    };
    announcing && are_plain(words, may_announce)
}

fn concludes(tokens: &[Token]) -> bool {
    tokens.len() == 1 && tokens[0].word().is_some_and(|word| CONCLUDING.contains(&word))
}
