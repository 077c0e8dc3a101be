//! Chooses among the places of a score in an answer.

use guerdon_core::outcome::Cell;
use serde::Deserialize;

/// The score that counts of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Which {
    /// There may be one only, once or more often.
    #[default]
    Only,
    First,
    Last,
}

/// A place that may have a score.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// `Err` says how two people could read it differently.
    pub reading: Result<Cell, String>,
    /// No continuation changes this one, nor those before it.
    pub certain: bool,
}

impl Candidate {
    pub const fn new(reading: Result<Cell, String>, certain: bool) -> Self {
        Self { reading, certain }
    }
}

/// Reason why there is no score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// There is none.
    Missing,
    /// There is a text that is not a score, or that may not be one.
    Unclear(String),
}

/// The candidate that counts.
pub fn choose(which: Which, mut candidates: impl Iterator<Item = Candidate>) -> Result<Candidate, Unread> {
    match which {
        Which::First => candidates.next().ok_or(Unread::Missing),
        Which::Last => candidates.last().ok_or(Unread::Missing),
        Which::Only => only(candidates),
    }
}

fn only(candidates: impl Iterator<Item = Candidate>) -> Result<Candidate, Unread> {
    let mut found: Option<Candidate> = None;
    for candidate in candidates {
        if let Err(why) = candidate.reading {
            return Err(Unread::Unclear(why));
        }
        match &found {
            None => found = Some(candidate),
            Some(first) if first.reading == candidate.reading => {}
            Some(first) => {
                let both = format!("{} and {}", shown(first), shown(&candidate));
                return Err(Unread::Unclear(format!(
                    "several different scores ({both}; which= says which one counts)"
                )));
            }
        }
    }
    found.ok_or(Unread::Missing)
}

fn shown(candidate: &Candidate) -> String {
    match &candidate.reading {
        Ok(Cell::Value(value)) => value.to_string(),
        Ok(_) => "null".to_owned(),
        Err(why) => why.clone(),
    }
}
