//! `ScoreParser`: how one function's scores are read out of its judge's answers.

use std::borrow::Cow;

use guerdon_core::outcome::Cell;

use super::candidates::{Candidate, Unread, Which};
use super::choice::Choice;
use super::json::json_field;
use super::logprob::LogProb;
use super::number::number;
use super::pattern::Pattern;
use super::range::{Range, fitting};
use super::reasoning::stripped;
use super::rubric::{Judgment, Rubric};
use super::tag::tagged;
use crate::json_path::JsonPath;
use crate::quote::quoted;

/// Place of the score in an answer.
#[derive(Clone, Debug)]
pub enum Method {
    /// A verdict: "Score: 7", "7/10", 7.
    Number,
    /// The same behind a label in another language: "得分：7".
    Labelled(String),
    /// The verdict within `<name>…</name>`.
    Tag(String),
    Pattern(Pattern),
    /// A field of the JSON that the answer is or holds.
    Json(JsonPath),
    YesNo,
    Choice(Choice),
    /// The probability of the first token.
    LogProb(LogProb),
    Rubric(Rubric),
    /// A function of the user, called elsewhere: any complete answer is taken, and abstains here.
    Function,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct ScoreParser {
    pub method: Method,
    pub which: Which,
    pub range: Option<Range>,
    /// True if the judge's reasoning is read, too.
    pub keep_reasoning: bool,
}

/// The parts of an answer that may have scores.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnswerText<'a> {
    pub text: &'a str,
    /// Reasoning, if the server gives it apart from the text.
    pub reasoning: Option<&'a str>,
    /// It would have gone on: `max_tokens` was reached, or the rest has not come yet.
    pub cut: bool,
}

impl From<Method> for ScoreParser {
    fn from(method: Method) -> Self {
        Self { method, which: Which::Only, range: None, keep_reasoning: false }
    }
}

impl ScoreParser {
    /// Reads the score in an answer whose reasoning, if any, is in the text; `Err` has the missing
    /// or unclear part. `cut`: the answer would have gone on.
    pub fn read(&self, text: &str, cut: bool) -> Result<Cell, String> {
        self.read_answer(AnswerText { text, reasoning: None, cut })
    }

    /// The score in an answer.
    pub fn read_answer(&self, answer: AnswerText<'_>) -> Result<Cell, String> {
        self.found(answer).map_err(|missing| format!("{missing} in the answer {}", quoted(answer.text)))
    }

    /// The score that every continuation of this beginning of an answer has; `None` while there may
    /// be another.
    #[must_use]
    pub fn decided(&self, beginning: AnswerText<'_>) -> Option<Cell> {
        if self.which != Which::First {
            return None; // the last score may come yet
        }
        self.found(AnswerText { cut: true, ..beginning }).ok()
    }

    /// Returns the number of criteria in the prompt; `None` where it is one score.
    #[must_use]
    pub const fn criteria(&self) -> Option<usize> {
        if let Method::Rubric(rubric) = &self.method { Some(rubric.criteria.len()) } else { None }
    }

    /// Returns the judgment of each criterion of `Method::Rubric` in an answer.
    pub fn read_judgments(&self, answer: AnswerText<'_>) -> Result<Vec<Judgment>, String> {
        let Method::Rubric(rubric) = &self.method else { return Err("no criteria were asked for".to_owned()) };
        let read = || {
            let text = self.readable(answer)?;
            let judgments = rubric.read(&text, self.range).map_err(|unread| self.why(unread))?;
            if answer.cut { Err(CUT.to_owned()) } else { Ok(judgments) }
        };
        read().map_err(|missing| format!("{missing} in the answer {}", quoted(answer.text)))
    }

    pub(super) fn found(&self, answer: AnswerText<'_>) -> Result<Cell, String> {
        let text = self.readable(answer)?;
        let candidate = self.find(&text, answer.cut).map_err(|unread| match unread {
            Unread::Missing if answer.cut => CUT.to_owned(),
            unread => self.why(unread),
        })?;
        // The end of a reasoning that is still to come would make all of this a draft.
        let complete = self.keep_reasoning || has_text(answer.reasoning);
        if answer.cut && !(self.which == Which::First && candidate.certain && complete) {
            return Err(CUT.to_owned());
        }
        candidate.reading.and_then(|cell| fitting(cell, self.range)).and_then(|cell| self.usual(cell))
    }

    /// Accepts a number that may be a score if there is no range: "call 988" has none.
    fn usual(&self, cell: Cell) -> Result<Cell, String> {
        let free = self.range.is_none()
            && matches!(self.method, Method::Number | Method::Labelled(_) | Method::Tag(_) | Method::Json(_));
        match cell {
            Cell::Value(value) if free && !(0.0..=100.0).contains(&value) => {
                Err(format!("{value}, which is no score from 0 to 100 (range= admits others),"))
            }
            cell => Ok(cell),
        }
    }

    /// Returns the answer for a function of the user, without reasoning and blanks around it.
    #[must_use]
    pub fn for_function(&self, answer: AnswerText<'_>) -> Option<String> {
        let Method::Function = self.method else { return None };
        self.readable(answer).ok().map(|text| text.trim().to_owned())
    }

    /// Returns the part of an answer that is read.
    fn readable<'a>(&self, answer: AnswerText<'a>) -> Result<Cow<'a, str>, String> {
        match answer.reasoning.filter(|_| has_text(answer.reasoning)) {
            Some(reasoning) if self.keep_reasoning => Ok(Cow::Owned(format!("{reasoning}\n{}", answer.text))),
            None if !self.keep_reasoning => stripped(answer.text),
            _ => Ok(Cow::Borrowed(answer.text)),
        }
    }

    fn find(&self, text: &str, cut: bool) -> Result<Candidate, Unread> {
        match &self.method {
            Method::Number => number(text, self.which, cut, self.range, None),
            Method::Labelled(label) => number(text, self.which, cut, self.range, Some(label)),
            Method::Tag(name) => tagged(text, name, self.which, cut, self.range),
            Method::Pattern(pattern) => pattern.read(text, self.which, cut),
            Method::Json(path) => json_field(text, path, self.which, self.range),
            Method::YesNo => Choice::yes_no().read(text, self.which, cut),
            Method::Choice(choice) => choice.read(text, self.which, cut),
            Method::Rubric(rubric) => {
                rubric.read(text, self.range).map(|judgments| Candidate::new(Ok(rubric.mean(&judgments)), false))
            }
            Method::Function => Ok(Candidate::new(Ok(Cell::Abstained), false)),
            Method::LogProb(_) => {
                Err(Unread::Unclear("no log-probabilities: does the server support logprobs?".to_owned()))
            }
        }
    }

    fn why(&self, unread: Unread) -> String {
        if let Unread::Unclear(why) = unread {
            return why;
        }
        match &self.method {
            Method::Number | Method::Labelled(_) => "no number".to_owned(),
            Method::Tag(name) => format!("no <{name}>…</{name}>"),
            Method::Pattern(pattern) => format!("no match of {:?}", pattern.as_str()),
            Method::Json(_) | Method::Rubric(_) => "no JSON".to_owned(),
            Method::YesNo => "neither yes nor no".to_owned(),
            Method::Choice(_) => "none of the labels".to_owned(),
            Method::LogProb(_) => "no log-probabilities".to_owned(),
            Method::Function => "nothing".to_owned(),
        }
    }
}

const CUT: &str = "a score that may be cut off (max_tokens was reached, or a filter ended the answer)";

fn has_text(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.trim().is_empty())
}
