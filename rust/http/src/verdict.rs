//! Reading a score out of a judge's words.
//!
//! - V-1  What holds no score as it was asked for is an error that shows the words: never a guess, never 0.
//! - V-2  Words may be hostile, since a model wrote them: reading takes time in proportion to their length.
//! - V-3  A token that the server did not list is not taken for impossible. Its probability is at most `u`: what the listed ones leave of 1, and
//!   the least of theirs but one (servers add the token that was chosen to the most likely ones). A score that depends on it by more than
//!   `NEARLY_NOTHING` is an error.
//! - V-4  A score at the end of an answer that was cut is none, if a letter more, a digit or a fraction would change it: "1" may be the beginning
//!   of "10", "0" that of "0.8", "no" that of "not sure".

use std::collections::BTreeMap;

use guerdon_core::outcome::Cell;
use regex::{Regex, RegexBuilder};
use serde_json::Value;

use crate::path::Path;
use crate::shown::shown;

/// The most that a regex may compile to.
const REGEX_BYTES: usize = 1 << 20;
/// By how much a soft score may be off for what the server did not list (V-3).
const NEARLY_NOTHING: f64 = 0.01;

/// The log of a probability that was rounded up is hardly above 0.
const ROUNDED: f64 = 0.01;

/// A pattern that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PatternError(String);

/// How a score is read out of a judge's answer.
#[derive(Clone, Debug)]
pub enum Parse {
    /// The first number.
    Number,
    /// The number within the last `<name>…</name>`.
    Tag(String),
    /// What the first match of a pattern's first group (without one: all of it) is: a number, or one of these words.
    Pattern(Regex, BTreeMap<String, f64>),
    /// A field of the JSON that the answer is or holds.
    Json(Path),
    /// The first "yes" (1) or "no" (0).
    YesNo,
    /// The probability of the first token, among these if there are others.
    LogProb { token: String, others: Vec<String> },
}

impl Parse {
    /// A pattern in Rust's syntax, which has neither backreferences nor look-around and so no catastrophic case (V-2).
    pub fn pattern(pattern: &str, words: BTreeMap<String, f64>) -> Result<Self, PatternError> {
        let built = RegexBuilder::new(pattern).size_limit(REGEX_BYTES).build();
        built.map(|regex| Self::Pattern(regex, words)).map_err(|error| PatternError(error.to_string()))
    }

    /// The score in a text; `Err` says what was looked for. `cut`: it would have gone on (V-4).
    pub fn read(&self, text: &str, cut: bool) -> Result<Cell, String> {
        let found = self.find(text);
        let stays = |more: &str| self.find(&format!("{text}{more}")) == found;
        let found = if cut && found.is_ok() && !["5", ".5", "x"].into_iter().all(stays) {
            Err("a score that may have gone on, since max_tokens was reached,".to_owned())
        } else {
            found
        };
        found.and_then(fitting).map_err(|missing| format!("{missing} in the answer {}", shown(text)))
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
            Self::LogProb { .. } => Err("no log-probabilities: does the server have logprobs?".to_owned()),
        }
    }

    /// The score in the log-probabilities of an answer's first token, as `(token, log-probability)` of the most likely ones.
    pub fn weigh(&self, most_likely: &[(&str, f64)]) -> Result<Cell, String> {
        let Self::LogProb { token, others } = self else {
            return Err("log-probabilities were not asked for".to_owned());
        };
        let wanted = |seen: &str| [token].into_iter().chain(others).any(|wanted| bare(seen) == bare(wanted));
        if let Some((token, logprob)) =
            most_likely.iter().find(|(seen, logprob)| *logprob > ROUNDED || (logprob.is_nan() && wanted(seen)))
        {
            return Err(format!("{logprob} for the token {}, which is no log-probability", shown(token)));
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
        let seen: Vec<String> = most_likely.iter().take(5).map(|(token, _)| shown(token)).collect();
        let range = if high > 0.0 { format!("{low:.2} to {high:.2}") } else { "anything".to_owned() };
        Err(format!(
            "no probability of {} among the most likely first tokens, which are {}, …: the score may be {range} (parse.logprob(top=) asks for \
             more of them)",
            missing.join(" and "),
            seen.join(", ")
        ))
    }
}

/// The most that the probability of a token can be that is not among these (V-3).
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
            let number = text.trim().parse::<f64>().map_err(|_| format!("{}, which is no number", shown(text)))?;
            Ok(Cell::Value(number))
        }
        Value::Array(_) | Value::Object(_) => Err(format!("{}, which is no number", shown(&value.to_string()))),
    };
    cell.and_then(fitting)
}

/// A score that a reward can be: neither NaN nor infinite, nor beyond what float32 holds.
fn fitting(cell: Cell) -> Result<Cell, String> {
    match cell {
        Cell::Value(value) if value.is_nan() || value.abs() > f64::from(f32::MAX) => {
            Err(format!("{value}, which is no reward"))
        }
        other => Ok(other),
    }
}

/// The first number that stands by itself: not the 4 of "GPT4", not the minus of "7-8"; nothing of "1,000" or "3,5", which may be
/// thousands, a fraction or two numbers.
fn first_number(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut at = 0;
    while at < bytes.len() {
        let starts = digit(at) || (bytes[at] == b'.' && digit(at + 1));
        if !starts {
            at += 1;
            continue;
        }
        let start = at;
        at = number_end(bytes, at);
        let before = text[..start].chars().next_back();
        let signed = matches!(before, Some('-' | '+' | '\u{2212}'));
        let ahead = if signed { text[..start].chars().rev().nth(1) } else { before };
        let glued = ahead.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
        if glued && !signed {
            continue;
        }
        if bytes.get(at) == Some(&b',') && digit(at + 1) {
            while digit(at) || (matches!(bytes.get(at), Some(b',' | b'.')) && digit(at + 1)) {
                at += 1;
            }
            continue;
        }
        let size: f64 = text[start..at].trim_end_matches('.').parse().ok()?;
        let negative = signed && !glued && matches!(before, Some('-' | '\u{2212}'));
        return Some(if negative { -size } else { size });
    }
    None
}

/// Where the number ends that starts here.
fn number_end(bytes: &[u8], start: usize) -> usize {
    let run = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let mut end = run(start);
    if bytes.get(end) == Some(&b'.') {
        end = run(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'-' | b'+')));
        let after = run(end + 1 + sign);
        if after > end + 1 + sign {
            end = after;
        }
    }
    end
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
        return part.parse().map_err(|_| format!("no number in the match {}", shown(part)));
    }
    let named =
        words.get(part).or_else(|| words.iter().find(|(word, _)| word.eq_ignore_ascii_case(part)).map(|(_, v)| v));
    named.copied().ok_or_else(|| format!("the match {} is none of the words given", shown(part)))
}

/// The first "yes" or "no" that is a word.
fn yes_no(text: &str) -> Option<f64> {
    text.split(|letter: char| !letter.is_alphanumeric()).find_map(|word| {
        let is = |other: &str| word.eq_ignore_ascii_case(other);
        if is("yes") { Some(1.0) } else { is("no").then_some(0.0) }
    })
}

/// The JSON that a text is, or the first object that it holds, as in a code block or behind some words.
fn inner_json(text: &str) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(text.trim()) {
        return Some(value);
    }
    // Each brace could start an object: few are looked at, so that braces without end take no square of time (V-2).
    text.match_indices('{')
        .take(16)
        .find_map(|(at, _)| serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>().next()?.ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parse: &Parse, text: &str) -> Option<f64> {
        match parse.read(text, false) {
            Ok(Cell::Value(value)) => Some(value),
            Ok(_) => Some(f64::NAN),
            Err(reason) => {
                assert!(reason.contains(&format!("{:?}", &text[..text.len().min(5)])[1..4]), "V-1: {reason}");
                None
            }
        }
    }

    #[test]
    fn the_first_number_that_stands_by_itself() {
        let cases = [
            ("Score: 7", Some(7.0)),
            ("8/10", Some(8.0)),
            ("7-8", Some(7.0)),
            ("It is -3.5, not 4", Some(-3.5)),
            ("\u{2212}2", Some(-2.0)),
            ("GPT4 says 9.", Some(9.0)),
            ("v2_3 is .5", Some(0.5)),
            ("1e-3", Some(0.001)),
            ("**6**", Some(6.0)),
            ("3e", Some(3.0)),
            ("7, 5", Some(7.0)),
            ("3,5", None),
            ("1,000.5 of 9", Some(9.0)),
            ("no opinion", None),
        ];
        for (text, expected) in cases {
            assert_eq!(read(&Parse::Number, text), expected, "{text}");
        }
    }

    #[test]
    fn the_last_tag_counts() {
        let tag = Parse::Tag("score".to_owned());
        assert_eq!(read(&tag, "<score>1</score> wait <score> 4.5 </score>"), Some(4.5));
        assert_eq!(read(&tag, "score 4"), None);
        assert_eq!(read(&tag, "<score>none</score>"), None);
    }

    #[test]
    fn patterns_give_numbers_or_words() {
        let number = Parse::pattern(r"Rating:\s*(\d+)", BTreeMap::new()).unwrap();
        assert_eq!(read(&number, "So 3. Rating: 8"), Some(8.0));
        assert_eq!(read(&number, "Score: 8"), None);
        let words = BTreeMap::from([("good".to_owned(), 1.0), ("bad".to_owned(), 0.0)]);
        let words = Parse::pattern(r"(?i)\b(good|bad)\b", words).unwrap();
        assert_eq!(read(&words, "Quite Bad"), Some(0.0));
        assert!(Parse::pattern(r"(?=x)", BTreeMap::new()).unwrap_err().to_string().contains("look-around"));
    }

    #[test]
    fn json_may_stand_among_words() {
        let json = Parse::Json(Path::parse("verdict.score").unwrap());
        assert_eq!(read(&json, r#"{"verdict": {"score": 3}}"#), Some(3.0));
        assert_eq!(read(&json, "Sure {ok}:\n```json\n{\"verdict\": {\"score\": \"2.5\"}}\n```"), Some(2.5));
        assert!(read(&json, r#"{"verdict": {"score": null}}"#).unwrap().is_nan());
        assert_eq!(read(&json, r#"{"score": 3}"#), None);
        assert_eq!(read(&json, &"{".repeat(100_000)), None);
    }

    #[test]
    fn v1_what_no_reward_can_be_is_shown() {
        let json = Parse::Json(Path::parse("s").unwrap());
        let words = Parse::pattern(r"(\S+)", BTreeMap::new()).unwrap();
        let cases =
            [(&Parse::Number, "It is 1e999"), (&Parse::Number, "4e38"), (&json, r#"{"s": "nan"}"#), (&words, "inf")];
        for (parse, text) in cases {
            let reason = parse.read(text, false).unwrap_err();
            assert!(reason.contains("is no reward") && reason.ends_with(&format!("{text:?}")), "{reason}");
        }
    }

    #[test]
    fn v4_what_was_cut_may_have_gone_on() {
        let pattern = |pattern: &str| Parse::pattern(pattern, BTreeMap::new()).unwrap();
        let words = Parse::pattern(r"(?i)is (\w+)", BTreeMap::from([("good".to_owned(), 1.0)])).unwrap();
        let json = Parse::Json(Path::parse("s").unwrap());
        let tag = Parse::Tag("s".to_owned());
        for (parse, text) in [
            (&Parse::Number, "Score: 1"),
            (&Parse::Number, "7."),
            (&Parse::Number, "3,"),
            (&Parse::Number, "2e"),
            (&Parse::YesNo, "Is it? No"),
            (&pattern(r"Rating: (\d+)"), "Rating: 1"),
            (&pattern(r"(\d+)$"), "Rating: 1"),
            (&pattern(r"[01](?:\.\d+)?"), "Rating: 0"),
            (&words, "It is good"),
        ] {
            assert!(parse.read(text, false).is_ok(), "{text}");
            let reason = parse.read(text, true).unwrap_err();
            assert!(reason.contains("may have gone on, since max_tokens was reached, in the answer"), "{reason}");
        }
        for (parse, text) in [
            (&Parse::Number, "8/1"),
            (&Parse::Number, "It is 7, beca"),
            (&Parse::YesNo, "No."),
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
        assert_eq!(read(&Parse::YesNo, "**Yes**, it does. No doubt."), Some(1.0));
        assert_eq!(read(&Parse::YesNo, "Nothing to say: NO"), Some(0.0));
        assert_eq!(read(&Parse::YesNo, "yesterday"), None);
    }

    #[test]
    fn probabilities_of_the_first_token() {
        let weigh = |others: &[&str], seen: &[(&str, f64)]| {
            let others = others.iter().map(|other| (*other).to_owned()).collect();
            let seen: Vec<(&str, f64)> = seen.iter().map(|(token, p)| (*token, p.ln())).collect();
            Parse::LogProb { token: "Yes".to_owned(), others }.weigh(&seen).ok()
        };
        let close = |cell: Option<Cell>, expected: f64| matches!(cell, Some(Cell::Value(value)) if (value - expected).abs() < 1e-9);
        assert!(close(weigh(&[], &[("Yes", 0.5), (" Yes", 0.2), ("No", 0.3)]), 0.7));
        assert!(close(weigh(&["No"], &[("Yes", 0.6), ("No", 0.2), ("Hm", 0.1)]), 0.75));
        assert!(close(weigh(&[], &[("Yes", 1.000_001)]), 1.0));
        assert!(weigh(&["No"], &[("Yes", f64::INFINITY), ("No", f64::INFINITY)]).is_none());
    }

    #[test]
    fn v3_what_is_not_listed_is_not_taken_for_impossible() {
        let weigh = |others: &[&str], seen: &[(&str, f64)]| {
            let others = others.iter().map(|other| (*other).to_owned()).collect();
            let seen: Vec<(&str, f64)> = seen.iter().map(|(token, p)| (*token, p.ln())).collect();
            Parse::LogProb { token: "Yes".to_owned(), others }.weigh(&seen)
        };
        let is = |cell: Result<Cell, String>, expected: f64| matches!(cell, Ok(Cell::Value(value)) if (value - expected).abs() < 1e-9);
        let fails = |cell: Result<Cell, String>, why: &str| cell.is_err_and(|reason| reason.contains(why));
        // Alone: 0 where nothing is left for it, or all others that are as likely are listed.
        assert!(is(weigh(&[], &[("No", 0.99), ("Hm", 0.005)]), 0.0));
        assert!(is(weigh(&[], &[("No", 0.5), ("Hm", 0.008), ("So", 0.007)]), 0.0));
        assert!(fails(weigh(&[], &[("No", 0.5), ("Hm", 0.3)]), "may be 0.00 to 0.20 "));
        assert!(
            fails(weigh(&[], &[("No", 0.5), ("Hm", 0.001)]), "may be 0.00 to 0.50 "),
            "the last may be the one chosen"
        );
        // With rivals: neither is listed, one of them, one of several.
        assert!(fails(weigh(&["No"], &[("Hm", 0.99), ("So", 0.001)]), "of \"Yes\" and \"No\" among"));
        assert!(fails(weigh(&["No"], &[("Hm", 1.0)]), "may be anything"));
        assert!(is(weigh(&["No"], &[("No", 0.9), ("Hm", 0.1)]), 0.0));
        assert!(is(weigh(&["No"], &[("Yes", 0.9), ("Hm", 0.005), ("So", 0.001)]), 1.0));
        assert!(fails(weigh(&["No"], &[("No", 0.6)]), "may be 0.00 to 0.40 "));
        assert!(fails(weigh(&["No"], &[("Yes", 0.6)]), "may be 0.60 to 1.00 "));
        assert!(is(weigh(&["No", "Maybe"], &[("Yes", 0.6), ("No", 0.39), ("Hm", 0.005), ("So", 0.001)]), 0.6 / 0.99));
        assert!(fails(weigh(&["No", "Maybe"], &[("Yes", 0.6), ("No", 0.2)]), "of \"Maybe\" among"));
        assert!(fails(weigh(&[], &[]), "may be 0.00 to 1.00 "));
        assert!(fails(weigh(&[], &[("No", 0.6), ("Yes", 0.0)]), "may be 0.00 to 0.40 "), "-9999 is unknown");
        assert!(fails(weigh(&[], &[(&"x".repeat(10_000), 0.6)]), "xxx\"…, …: the score"));
    }
}
