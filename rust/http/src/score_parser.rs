//! Parses a score out of a judge's answer.
//!
//! - An answer without the score that was asked for is an error that shows the
//!   answer: never a guess, never 0.
//! - Answers may be hostile, since a model wrote them: parsing takes time in proportion to their
//!   length.
//! - A score at the end of a truncated answer is an error if another letter or digit would change
//!   it: "1" may be the start of "10", "no" that of "not sure".

use std::collections::BTreeMap;

use guerdon_core::outcome::Cell;
use regex::{Regex, RegexBuilder};
use serde_json::Value;

use crate::first_number::first_number;
use crate::json_path::JsonPath;
use crate::quote::quoted;

/// The most that a regex may compile to.
const REGEX_BYTES: usize = 1 << 20;
/// By how much a soft score may be off because of tokens that the server did not list.
const NEARLY_NOTHING: f64 = 0.01;

/// The log of a probability that was rounded up is hardly above 0.
const ROUNDED: f64 = 0.01;

/// A pattern that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PatternError(String);

/// How a score is parsed out of a judge's answer.
#[derive(Clone, Debug)]
pub enum ScoreParser {
    /// The first number.
    Number,
    /// The number within the last `<name>…</name>`.
    Tag(String),
    /// What the first match of a pattern's first group (without one: all of it) is: a number, or
    /// one of these words.
    Pattern(Regex, BTreeMap<String, f64>),
    /// A field of the JSON that the answer is or holds.
    Json(JsonPath),
    /// The first "yes" (1) or "no" (0).
    YesNo,
    /// The probability of the first token, among these if there are others.
    LogProb { token: String, others: Vec<String> },
}

impl ScoreParser {
    /// A pattern in Rust's syntax, which has neither backreferences nor look-around and so no
    /// catastrophic case.
    pub fn pattern(pattern: &str, words: BTreeMap<String, f64>) -> Result<Self, PatternError> {
        let built = RegexBuilder::new(pattern).size_limit(REGEX_BYTES).build();
        built.map(|regex| Self::Pattern(regex, words)).map_err(|error| PatternError(error.to_string()))
    }

    /// The score in a text; `Err` says what is missing. `truncated`: the answer would have gone on.
    pub fn read(&self, text: &str, truncated: bool) -> Result<Cell, String> {
        let found = self.find(text);
        let stays = |more: &str| self.find(&format!("{text}{more}")) == found;
        let found = if truncated && found.is_ok() && !["5", ".5", "x"].into_iter().all(stays) {
            Err("a score that may be cut off (max_tokens was reached)".to_owned())
        } else {
            found
        };
        found.and_then(fitting).map_err(|missing| format!("{missing} in the answer {}", quoted(text)))
    }

    fn find(&self, text: &str) -> Result<Cell, String> {
        match self {
            Self::Number => first_number(text).map(Cell::Value).ok_or_else(|| "no number".to_owned()),
            Self::Tag(name) => within(text, name)
                .ok_or_else(|| format!("no <{name}>…</{name}>"))
                .and_then(|inside| first_number(inside).ok_or_else(|| format!("no number in <{name}>")))
                .map(Cell::Value),
            Self::Pattern(regex, words) => matched(regex, words, text).map(Cell::Value),
            Self::Json(path) => inner_json(text)
                .ok_or_else(|| "no JSON".to_owned())
                .and_then(|value| path.one(&value).ok_or_else(|| format!("no field {path}")).and_then(score)),
            Self::YesNo => yes_no(text).map(Cell::Value).ok_or_else(|| "neither yes nor no".to_owned()),
            Self::LogProb { .. } => Err("no log-probabilities: does the server support logprobs?".to_owned()),
        }
    }

    /// The score in the log-probabilities of an answer's first token, as `(token, log-probability)`
    /// of the most likely ones.
    pub fn read_logprobs(&self, most_likely: &[(&str, f64)]) -> Result<Cell, String> {
        let Self::LogProb { token, others } = self else {
            return Err("log-probabilities were not asked for".to_owned());
        };
        let wanted = |seen: &str| [token].into_iter().chain(others).any(|wanted| bare(seen) == bare(wanted));
        if let Some((token, logprob)) =
            most_likely.iter().find(|(seen, logprob)| *logprob > ROUNDED || (logprob.is_nan() && wanted(seen)))
        {
            return Err(format!("{logprob} for the token {}, which is not a log-probability", quoted(token)));
        }
        let listed = |wanted: &str| -> f64 {
            let same = most_likely.iter().filter(|(token, _)| bare(token) == bare(wanted));
            same.map(|(_, logprob)| logprob.exp()).sum::<f64>() + 0.0 // the sum of nothing is -0.0
        };
        let unlisted = unlisted(most_likely);
        let most = |listed: f64| if listed > 0.0 { listed } else { unlisted };
        let (share, rivals): (_, Vec<f64>) = (listed(token), others.iter().map(|other| listed(other)).collect());
        let part = |share: f64, rivals: f64| if others.is_empty() { share } else { share / (share + rivals) };
        let (least_rivals, most_rivals) = (rivals.iter().sum(), rivals.iter().copied().map(most).sum());
        let (low, high) = (part(share, most_rivals), part(most(share), least_rivals));
        if high - low <= NEARLY_NOTHING {
            return Ok(Cell::Value(part(share, least_rivals).min(1.0)));
        }
        let missing = [token].into_iter().chain(others).filter(|wanted| listed(wanted) <= 0.0);
        let missing: Vec<String> = missing.map(|wanted| format!("{wanted:?}")).collect();
        let seen: Vec<String> = most_likely.iter().take(5).map(|(token, _)| quoted(token)).collect();
        let range = if high > 0.0 { format!("{low:.2} to {high:.2}") } else { "anything".to_owned() };
        Err(format!(
            "no probability of {} among the most likely first tokens, which are {}, …: the score may be {range} (parse.logprob(top=) asks for \
             more of them)",
            missing.join(" and "),
            seen.join(", ")
        ))
    }
}

/// The most that the probability of a token can be that the server did not list: a missing token is
/// not an impossible one. (Servers add the chosen token to the most likely ones.)
fn unlisted(most_likely: &[(&str, f64)]) -> f64 {
    // Some servers say -9999 for "unknown, but small".
    let mut listed: Vec<f64> = most_likely.iter().map(|(_, logprob)| logprob.exp()).filter(|p| *p > 0.0).collect();
    listed.sort_by(f64::total_cmp);
    let left = (1.0 - listed.iter().sum::<f64>()).max(0.0);
    listed.get(1).map_or(left, |least_but_one| left.min(*least_but_one))
}

/// A token without the mark of a space before it.
fn bare(token: &str) -> &str {
    token.trim_matches(|letter: char| letter.is_whitespace() || matches!(letter, '\u{120}' | '\u{2581}' | '\u{10A}'))
}

/// The score that a JSON value is.
pub fn score(value: &Value) -> Result<Cell, String> {
    let cell = match value {
        Value::Null => Ok(Cell::Abstained),
        Value::Bool(yes) => Ok(Cell::Value(f64::from(u8::from(*yes)))),
        Value::Number(number) => Ok(Cell::Value(number.as_f64().unwrap_or(f64::NAN))),
        Value::String(text) => {
            let number = text.trim().parse::<f64>().map_err(|_| format!("{}, which is not a number", quoted(text)))?;
            Ok(Cell::Value(number))
        }
        Value::Array(_) | Value::Object(_) => Err(format!("{}, which is not a number", quoted(&value.to_string()))),
    };
    cell.and_then(fitting)
}

/// A score that a reward can be: neither NaN nor infinite, nor beyond what float32 holds.
fn fitting(cell: Cell) -> Result<Cell, String> {
    match cell {
        Cell::Value(value) if value.is_nan() || value.abs() > f64::from(f32::MAX) => {
            Err(format!("{value}, which is not a valid reward"))
        }
        other => Ok(other),
    }
}

/// What stands in the last complete `<name>…</name>`.
fn within<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let end = text.rfind(&format!("</{name}>"))?;
    let open = format!("<{name}>");
    let start = text[..end].rfind(&open)? + open.len();
    Some(&text[start..end])
}

fn matched(regex: &Regex, words: &BTreeMap<String, f64>, text: &str) -> Result<f64, String> {
    let found = regex.captures(text).ok_or_else(|| format!("no match of {:?}", regex.as_str()))?;
    let part = found.get(1).or_else(|| found.get(0)).map_or("", |part| part.as_str().trim());
    if words.is_empty() {
        return part.parse().map_err(|_| format!("no number in the match {}", quoted(part)));
    }
    let named =
        words.get(part).or_else(|| words.iter().find(|(word, _)| word.eq_ignore_ascii_case(part)).map(|(_, v)| v));
    named.copied().ok_or_else(|| format!("the match {} is none of the words given", quoted(part)))
}

/// The first "yes" or "no" that is a word.
fn yes_no(text: &str) -> Option<f64> {
    text.split(|letter: char| !letter.is_alphanumeric()).find_map(|word| {
        let is = |other: &str| word.eq_ignore_ascii_case(other);
        if is("yes") { Some(1.0) } else { is("no").then_some(0.0) }
    })
}

/// The JSON that a text is, or the first object that it holds, as in a code block or behind some
/// words.
fn inner_json(text: &str) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(text.trim()) {
        return Some(value);
    }
    // Each brace could start an object: few are looked at, so that many braces don't take quadratic
    // time.
    text.match_indices('{')
        .take(16)
        .find_map(|(at, _)| serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>().next()?.ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parse: &ScoreParser, text: &str) -> Option<f64> {
        match parse.read(text, false) {
            Ok(Cell::Value(value)) => Some(value),
            Ok(_) => Some(f64::NAN),
            Err(reason) => {
                assert!(reason.contains(&format!("{:?}", &text[..text.len().min(5)])[1..4]), "{reason}");
                None
            }
        }
    }

    #[test]
    fn the_last_tag_counts() {
        let tag = ScoreParser::Tag("score".to_owned());
        assert_eq!(read(&tag, "<score>1</score> wait <score> 4.5 </score>"), Some(4.5));
        assert_eq!(read(&tag, "score 4"), None);
        assert_eq!(read(&tag, "<score>none</score>"), None);
    }

    #[test]
    fn patterns_give_numbers_or_words() {
        let number = ScoreParser::pattern(r"Rating:\s*(\d+)", BTreeMap::new()).unwrap();
        assert_eq!(read(&number, "So 3. Rating: 8"), Some(8.0));
        assert_eq!(read(&number, "Score: 8"), None);
        let words = BTreeMap::from([("good".to_owned(), 1.0), ("bad".to_owned(), 0.0)]);
        let words = ScoreParser::pattern(r"(?i)\b(good|bad)\b", words).unwrap();
        assert_eq!(read(&words, "Quite Bad"), Some(0.0));
        assert!(ScoreParser::pattern(r"(?=x)", BTreeMap::new()).unwrap_err().to_string().contains("look-around"));
    }

    #[test]
    fn json_may_stand_among_words() {
        let json = ScoreParser::Json(JsonPath::parse("verdict.score").unwrap());
        assert_eq!(read(&json, r#"{"verdict": {"score": 3}}"#), Some(3.0));
        assert_eq!(read(&json, "Sure {ok}:\n```json\n{\"verdict\": {\"score\": \"2.5\"}}\n```"), Some(2.5));
        assert!(read(&json, r#"{"verdict": {"score": null}}"#).unwrap().is_nan());
        assert_eq!(read(&json, r#"{"score": 3}"#), None);
        assert_eq!(read(&json, &"{".repeat(100_000)), None);
    }

    #[test]
    fn what_no_reward_can_be_is_shown() {
        let json = ScoreParser::Json(JsonPath::parse("s").unwrap());
        let words = ScoreParser::pattern(r"(\S+)", BTreeMap::new()).unwrap();
        let cases = [
            (&ScoreParser::Number, "It is 1e999"),
            (&ScoreParser::Number, "4e38"),
            (&json, r#"{"s": "nan"}"#),
            (&words, "inf"),
        ];
        for (parse, text) in cases {
            let reason = parse.read(text, false).unwrap_err();
            assert!(reason.contains("is not a valid reward") && reason.ends_with(&format!("{text:?}")), "{reason}");
        }
    }

    #[test]
    fn a_truncated_answer_may_have_gone_on() {
        let pattern = |pattern: &str| ScoreParser::pattern(pattern, BTreeMap::new()).unwrap();
        let words = ScoreParser::pattern(r"(?i)is (\w+)", BTreeMap::from([("good".to_owned(), 1.0)])).unwrap();
        let json = ScoreParser::Json(JsonPath::parse("s").unwrap());
        let tag = ScoreParser::Tag("s".to_owned());
        for (parse, text) in [
            (&ScoreParser::Number, "Score: 1"),
            (&ScoreParser::Number, "7."),
            (&ScoreParser::Number, "3,"),
            (&ScoreParser::Number, "2e"),
            (&ScoreParser::YesNo, "Is it? No"),
            (&pattern(r"Rating: (\d+)"), "Rating: 1"),
            (&pattern(r"(\d+)$"), "Rating: 1"),
            (&pattern(r"[01](?:\.\d+)?"), "Rating: 0"),
            (&words, "It is good"),
        ] {
            assert!(parse.read(text, false).is_ok(), "{text}");
            let reason = parse.read(text, true).unwrap_err();
            assert!(reason.contains("may be cut off (max_tokens was reached) in the answer"), "{reason}");
        }
        for (parse, text) in [
            (&ScoreParser::Number, "8/1"),
            (&ScoreParser::Number, "It is 7, beca"),
            (&ScoreParser::YesNo, "No."),
            (&tag, "<s>1</s> and <s>5"),
            (&pattern(r"Rating: (\d+)"), "Rating: 10 "),
            (&words, "It is good, 1"),
            (&json, r#"{"s": 1} so"#),
            (&json, r#"{"s": 1}"#),
        ] {
            assert!(parse.read(text, true).is_ok(), "{text}");
        }
        assert!(json.read(r#"{"s": 1"#, true).unwrap_err().starts_with("no JSON in"));
    }

    #[test]
    fn yes_and_no_are_words() {
        assert_eq!(read(&ScoreParser::YesNo, "**Yes**, it does. No doubt."), Some(1.0));
        assert_eq!(read(&ScoreParser::YesNo, "Nothing to say: NO"), Some(0.0));
        assert_eq!(read(&ScoreParser::YesNo, "yesterday"), None);
    }

    #[test]
    fn probabilities_of_the_first_token() {
        let read_logprobs = |others: &[&str], seen: &[(&str, f64)]| {
            let others = others.iter().map(|other| (*other).to_owned()).collect();
            let seen: Vec<(&str, f64)> = seen.iter().map(|(token, p)| (*token, p.ln())).collect();
            ScoreParser::LogProb { token: "Yes".to_owned(), others }.read_logprobs(&seen).ok()
        };
        let close = |cell: Option<Cell>, expected: f64| matches!(cell, Some(Cell::Value(value)) if (value - expected).abs() < 1e-9);
        assert!(close(read_logprobs(&[], &[("Yes", 0.5), (" Yes", 0.2), ("No", 0.3)]), 0.7));
        assert!(close(read_logprobs(&["No"], &[("Yes", 0.6), ("No", 0.2), ("Hm", 0.1)]), 0.75));
        assert!(close(read_logprobs(&[], &[("Yes", 1.000_001)]), 1.0));
        assert!(read_logprobs(&["No"], &[("Yes", f64::INFINITY), ("No", f64::INFINITY)]).is_none());
    }

    #[test]
    fn what_is_not_listed_is_not_taken_for_impossible() {
        let read_logprobs = |others: &[&str], seen: &[(&str, f64)]| {
            let others = others.iter().map(|other| (*other).to_owned()).collect();
            let seen: Vec<(&str, f64)> = seen.iter().map(|(token, p)| (*token, p.ln())).collect();
            ScoreParser::LogProb { token: "Yes".to_owned(), others }.read_logprobs(&seen)
        };
        let is = |cell: Result<Cell, String>, expected: f64| matches!(cell, Ok(Cell::Value(value)) if (value - expected).abs() < 1e-9);
        let fails = |cell: Result<Cell, String>, why: &str| cell.is_err_and(|reason| reason.contains(why));
        // Alone: 0 where nothing is left for it, or all others that are as likely are listed.
        assert!(is(read_logprobs(&[], &[("No", 0.99), ("Hm", 0.005)]), 0.0));
        assert!(is(read_logprobs(&[], &[("No", 0.5), ("Hm", 0.008), ("So", 0.007)]), 0.0));
        assert!(fails(read_logprobs(&[], &[("No", 0.5), ("Hm", 0.3)]), "may be 0.00 to 0.20 "));
        assert!(
            fails(read_logprobs(&[], &[("No", 0.5), ("Hm", 0.001)]), "may be 0.00 to 0.50 "),
            "the last may be the one chosen"
        );
        // With rivals: neither is listed, one of them, one of several.
        assert!(fails(read_logprobs(&["No"], &[("Hm", 0.99), ("So", 0.001)]), "of \"Yes\" and \"No\" among"));
        assert!(fails(read_logprobs(&["No"], &[("Hm", 1.0)]), "may be anything"));
        assert!(is(read_logprobs(&["No"], &[("No", 0.9), ("Hm", 0.1)]), 0.0));
        assert!(is(read_logprobs(&["No"], &[("Yes", 0.9), ("Hm", 0.005), ("So", 0.001)]), 1.0));
        assert!(fails(read_logprobs(&["No"], &[("No", 0.6)]), "may be 0.00 to 0.40 "));
        assert!(fails(read_logprobs(&["No"], &[("Yes", 0.6)]), "may be 0.60 to 1.00 "));
        assert!(is(
            read_logprobs(&["No", "Maybe"], &[("Yes", 0.6), ("No", 0.39), ("Hm", 0.005), ("So", 0.001)]),
            0.6 / 0.99
        ));
        assert!(fails(read_logprobs(&["No", "Maybe"], &[("Yes", 0.6), ("No", 0.2)]), "of \"Maybe\" among"));
        assert!(fails(read_logprobs(&[], &[]), "may be 0.00 to 1.00 "));
        assert!(fails(read_logprobs(&[], &[("No", 0.6), ("Yes", 0.0)]), "may be 0.00 to 0.40 "), "-9999 is unknown");
        assert!(fails(read_logprobs(&[], &[(&"x".repeat(10_000), 0.6)]), "xxx\"…, …: the score"));
    }
}
