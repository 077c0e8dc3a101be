//! Reads the scores of several criteria out of one answer.

use guerdon_core::outcome::Cell;
use serde_json::{Map, Value};

use super::candidates::{Unread, Which};
use super::json::{BROKEN, objects};
use super::range::{Range, fitting};
use super::tag::{contents, tagged};
use super::value::judged;

/// Fields of a criterion's object that say why.
const REASONS: [&str; 6] = ["reason", "reasons", "reasoning", "explanation", "justification", "rationale"];

/// One criterion.
#[derive(Clone, Debug, PartialEq)]
pub struct Criterion {
    pub name: String,
    /// Its share of the whole, above 0.
    pub weight: f64,
}

/// Layout of the scores in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `{"accuracy": 8, "clarity": {"reason": "…", "score": 7}}`.
    Json,
    /// `<accuracy>8</accuracy>`.
    Tags,
}

/// Expected scores of an answer: a score for each criterion.
#[derive(Clone, Debug)]
pub struct Rubric {
    pub criteria: Vec<Criterion>,
    pub layout: Layout,
}

/// Judgment of one criterion in an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgment {
    pub score: Cell,
    pub reason: Option<String>,
}

impl Rubric {
    /// One verdict a criterion, in order.
    pub fn read(&self, text: &str, range: Option<Range>) -> Result<Vec<Judgment>, Unread> {
        match self.layout {
            Layout::Json => self.of_json(text, range),
            Layout::Tags => self.criteria.iter().map(|one| of_tags(text, &one.name, range)).collect(),
        }
    }

    /// The weighted mean; an abstention from one criterion abstains.
    pub fn mean(&self, judgments: &[Judgment]) -> Cell {
        let (mut sum, mut weights) = (0.0, 0.0);
        for (criterion, judgment) in self.criteria.iter().zip(judgments) {
            match judgment.score {
                Cell::Value(value) => {
                    sum += criterion.weight * value;
                    weights += criterion.weight;
                }
                _ => return Cell::Abstained,
            }
        }
        Cell::Value(sum / weights)
    }

    fn of_json(&self, text: &str, range: Option<Range>) -> Result<Vec<Judgment>, Unread> {
        let mut found: Option<Vec<Judgment>> = None;
        for object in objects(text) {
            let object = object.ok_or_else(|| Unread::Unclear(BROKEN.to_owned()))?;
            let Some(fields) = self.fields(&object) else { continue };
            let judgments = self.criteria.iter().map(|one| of_fields(fields, &one.name, range));
            let judgments: Vec<Judgment> = judgments.collect::<Result<_, _>>().map_err(Unread::Unclear)?;
            let differs = |first: &Vec<Judgment>| first.iter().zip(&judgments).any(|(a, b)| a.score != b.score);
            if found.as_ref().is_some_and(differs) {
                return Err(Unread::Unclear("several different scores for one criterion".to_owned()));
            }
            found.get_or_insert(judgments);
        }
        found.ok_or(Unread::Missing)
    }

    /// The object that names criteria: the answer's, or one in a field of it.
    fn fields<'a>(&self, object: &'a Value) -> Option<&'a Map<String, Value>> {
        let names = |fields: &Map<String, Value>| self.criteria.iter().any(|one| fields.contains_key(&one.name));
        let fields = object.as_object()?;
        if names(fields) {
            return Some(fields);
        }
        let mut inner = fields.values().filter_map(Value::as_object).filter(|inner| names(inner));
        inner.next().filter(|_| inner.next().is_none())
    }
}

fn of_fields(fields: &Map<String, Value>, name: &str, range: Option<Range>) -> Result<Judgment, String> {
    let of = |why: String| format!("{why} for the criterion {name:?}");
    let value = fields.get(name).ok_or_else(|| of("no score".to_owned()))?;
    let (value, reason) = match value {
        Value::Object(inner) => {
            let reason = REASONS.iter().find_map(|name| inner.get(*name)?.as_str());
            (inner.get("score").ok_or_else(|| of("no \"score\"".to_owned()))?, reason)
        }
        plain => (plain, REASONS.iter().find_map(|reason| fields.get(&format!("{name}_{reason}"))?.as_str())),
    };
    let score = judged(value, range).and_then(|cell| fitting(cell, range)).map_err(of)?;
    Ok(Judgment { score, reason: reason.map(str::to_owned) })
}

fn of_tags(text: &str, name: &str, range: Option<Range>) -> Result<Judgment, Unread> {
    let closed = contents(text, name).filter(|content| content.closed);
    let inside: Vec<&str> = closed.map(|content| content.inside).collect();
    let nested = inside.last().filter(|inside| contents(inside, "score").next().is_some());
    let found = match nested {
        Some(inside) if inside.len() > 1 => tagged(inside, "score", Which::Only, false, range),
        _ => tagged(text, name, Which::Only, false, range),
    };
    let missing = || Unread::Unclear(format!("no <{name}>…</{name}>"));
    let found = found.map_err(|why| if why == Unread::Missing { missing() } else { why })?;
    let of = |why: String| Unread::Unclear(format!("{why} for the criterion {name:?}"));
    let score = found.reading.and_then(|cell| fitting(cell, range)).map_err(of)?;
    let reason = nested.and_then(|inside| match contents(inside, "reason").last() {
        Some(reason) if reason.closed => Some(reason.inside.trim().to_owned()),
        _ => None,
    });
    Ok(Judgment { score, reason })
}
