//! Reads which of several labels an answer chose.
//!
//! A label counts where it stands as a verdict: alone on its line, behind a colon or "the answer
//! is", in double brackets, and not as the beginning of a sentence about it.

use guerdon_core::outcome::Cell;

use super::ahead::Ahead;
use super::candidates::{Candidate, Unread, Which, choose};
use super::words::{is_blank, is_mark, is_negated, is_word, last_word};

/// Words that announce a verdict.
const ANNOUNCING: [&str; 22] = [
    "answer",
    "verdict",
    "choice",
    "winner",
    "choose",
    "pick",
    "select",
    "prefer",
    "boxed",
    "rating",
    "grade",
    "label",
    "judgment",
    "judgement",
    "decision",
    "category",
    "class",
    "preference",
    "conclusion",
    "text",
    "vote",
    "result",
];
/// Between a word that announces and the label.
const LINKS: [&str; 5] = ["is", "be", "would", "therefore", "goes"];
/// What labels are names of: "Option A".
const NOUNS: [&str; 9] =
    ["option", "response", "assistant", "answer", "model", "candidate", "completion", "choice", "solution"];

/// Labels and their scores.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The longest first.
    labels: Vec<(String, f64)>,
}

impl Choice {
    pub fn new(mut labels: Vec<(String, f64)>) -> Self {
        labels.sort_by_key(|(label, _)| std::cmp::Reverse(label.len()));
        Self { labels }
    }

    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().map(|(label, _)| label.as_str())
    }

    /// The score of the label that the text chose; `cut`: the text may go on.
    pub fn read(&self, text: &str, which: Which, cut: bool) -> Result<Candidate, Unread> {
        let alone = text.trim_matches(|letter: char| {
            letter.is_whitespace() || is_mark(letter) || matches!(letter, '.' | '!' | ',' | ':')
        });
        let same = self.labels.iter().find(|(label, _)| label.to_lowercase() == alone.to_lowercase());
        if let Some((_, value)) = same.filter(|_| !cut) {
            return Ok(Candidate::new(Ok(Cell::Value(*value)), false));
        }
        let mut mentions = Mentions { choice: self, text, at: 0, certain: true, passed: false };
        match choose(which, &mut mentions) {
            Err(Unread::Missing) if mentions.passed => {
                Err(Unread::Unclear("labels within sentences only, none of them as a verdict,".to_owned()))
            }
            found => found,
        }
    }

    /// The label that stands here, which is passed.
    fn label_at(&self, text: &str, ahead: &mut Ahead<'_>) -> Option<f64> {
        let start = ahead.at;
        for (label, value) in &self.labels {
            let stands = if label.chars().count() == 1 { text[start..].starts_with(label) } else { true };
            if stands && ahead.eat(label) {
                let glued = label.ends_with(is_word) && ahead.peek().is_some_and(|next| is_word(next) || next == '_');
                if !glued {
                    return Some(*value);
                }
            }
            ahead.at = start;
        }
        None
    }
}

/// The labels in a text.
struct Mentions<'a> {
    choice: &'a Choice,
    text: &'a str,
    at: usize,
    certain: bool,
    /// Some label was there that was no verdict.
    passed: bool,
}

impl Iterator for Mentions<'_> {
    type Item = Candidate;

    fn next(&mut self) -> Option<Candidate> {
        loop {
            let start = self.at;
            let letter = self.text[start..].chars().next()?;
            self.at += letter.len_utf8();
            let glued = is_word(letter) && self.text[..start].ends_with(|last| is_word(last) || last == '_');
            if letter.is_whitespace() || glued {
                continue;
            }
            let mut ahead = Ahead::new(self.text, start);
            let label = self.choice.label_at(self.text, &mut ahead);
            self.certain &= !ahead.met_end;
            let Some(value) = label else { continue };
            let end = ahead.at;
            let bracketed = self.text[..start].ends_with("[[") && self.text[end..].starts_with("]]");
            let announced = bracketed || is_announced(&self.text[..start]);
            let closed = bracketed || self.ends_here(&mut ahead, value);
            self.certain &= !ahead.met_end;
            self.at = end;
            if !announced || !closed {
                self.passed = true;
                continue;
            }
            let reading = if is_negated(&self.text[..start]) {
                Err("a label in a sentence with a negation".to_owned())
            } else {
                Ok(Cell::Value(value))
            };
            return Some(Candidate::new(reading, self.certain));
        }
    }
}

impl Mentions<'_> {
    /// Whether the verdict ends behind the label: not "A is…", "A or B", "A: …".
    fn ends_here(&self, ahead: &mut Ahead<'_>, value: f64) -> bool {
        let loose = |letter: char| is_blank(letter) || is_mark(letter);
        ahead.skip(is_mark);
        match ahead.peek() {
            None | Some('\n' | '\r' | '<' | '—' | '–' | '。') => true,
            Some('.' | ',' | ';' | '!') => {
                ahead.next();
                ahead.skip(loose);
                self.choice.label_at(self.text, ahead).is_none_or(|other| other == value)
            }
            Some(letter) if is_blank(letter) => {
                ahead.skip(is_blank);
                matches!(ahead.peek(), None | Some('\n' | '\r' | '(' | '-' | '–' | '—' | '*' | '|'))
            }
            Some(_) => false,
        }
    }
}

/// Whether what stands before a label says that it is the verdict.
fn is_announced(before: &str) -> bool {
    let before = trimmed(before);
    let (ahead, noun) = last_word(before);
    let before = if NOUNS.contains(&noun.to_lowercase().as_str()) { trimmed(ahead) } else { before };
    if starts_line(before) || before.ends_with([':', '=', '：', '→', '|']) || before.ends_with("->") {
        return true;
    }
    let mut before = before;
    loop {
        let (ahead, word) = last_word(before);
        let word = word.to_lowercase();
        if ANNOUNCING.contains(&word.as_str()) {
            return true;
        }
        if !LINKS.contains(&word.as_str()) {
            return false;
        }
        before = trimmed(ahead);
    }
}

fn trimmed(before: &str) -> &str {
    before.trim_end_matches(|letter: char| is_blank(letter) || is_mark(letter))
}

/// Whether nothing but a list's mark stands before on the line.
fn starts_line(before: &str) -> bool {
    let mut line = before.chars().rev().take_while(|letter| *letter != '\n');
    line.all(|letter| is_blank(letter) || is_mark(letter) || matches!(letter, '-' | '#' | '>' | '•' | '+' | '\r'))
}
