//! IFEval's instructions on marks in a text: placeholders, bullets, highlights, sections, titles.

use std::sync::LazyLock;

use regex::{Regex, escape};

use crate::kernels::ifeval::keyword::is_plain;
use crate::kernels::python_json::loads;
use crate::kernels::python_text::strip;

/// Compiles one of our patterns with `re`'s meaning: `\s` includes U+001C to U+001F. An empty class
/// matches nothing.
fn pattern(pattern: &str) -> Option<Regex> {
    Regex::new(&pattern.replace(r"\s", r"[\s\x1c-\x1f]")).ok()
}

fn count(pattern: &LazyLock<Option<Regex>>, text: &str) -> usize {
    pattern.as_ref().map_or(0, |pattern| pattern.find_iter(text).count())
}

static PLACEHOLDER: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"\[.*?\]"));
static STAR: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"(?m)^\s*\*[^*].*$"));
static DASH: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"(?m)^\s*-.*$"));
static HIGHLIGHT: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"\*[^\n*]*\*"));
static DOUBLE: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"\*\*[^\n*]*\*\*"));
static TITLE: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"<<[^\n]+>>"));
static PS: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"p\.\s?s\."));
static PPS: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"p\.\s?p\.\s?s"));

/// Counts texts in square brackets.
pub fn placeholders(text: &str) -> usize {
    count(&PLACEHOLDER, text)
}

/// Counts lines that begin with one asterisk or with a dash.
pub fn bullets(text: &str) -> usize {
    count(&STAR, text) + count(&DASH, text)
}

/// Counts texts between asterisks; those between double asterisks count once more.
pub fn highlights(text: &str) -> usize {
    let holds = |one: &str, stars: usize| {
        let inside = if stars == 1 { one.trim_matches('*') } else { one.get(2..one.len() - 2).unwrap_or_default() };
        !strip(inside).is_empty()
    };
    let found = |pattern: &LazyLock<Option<Regex>>, stars| {
        pattern.as_ref().map_or(0, |one| one.find_iter(text).filter(|found| holds(found.as_str(), stars)).count())
    };
    found(&HIGHLIGHT, 1) + found(&DOUBLE, 2)
}

/// Counts occurrences of a word before a number. `None` if the word is more than plain, so that
/// only `re` can decide.
pub fn sections(text: &str, splitter: &str) -> Option<usize> {
    if splitter.is_empty() || !splitter.chars().all(|one| one.is_ascii_alphanumeric() || one == ' ') {
        return None;
    }
    // White space on either side belongs to the divider, and its amount does not matter.
    let sections = pattern(&format!(r"{}\s?\p{{Nd}}+", escape(splitter)))?;
    Some(sections.find_iter(text).count())
}

/// Checks for a postscript, in a lower-case text. `None` if its marker is more than plain.
pub fn has_postscript(text: &str, marker: &str) -> Option<bool> {
    let is_in = |pattern: &LazyLock<Option<Regex>>| Some(pattern.as_ref()?.is_match(text));
    match marker {
        "P.S." => is_in(&PS),
        "P.P.S" => is_in(&PPS),
        _ => {
            let marker = marker.to_lowercase();
            let is_plain = marker.chars().all(|one| one == '.' || is_plain(one));
            let marker = if is_plain { escape(&marker).replace(r"\.", ".") } else { return None };
            Some(Regex::new(&marker).ok()?.is_match(text))
        }
    }
}

/// Checks for a title in double angle brackets, on one line.
pub fn has_title(text: &str) -> bool {
    let holds = |title: &str| !strip(title.trim_start_matches('<').trim_end_matches('>')).is_empty();
    TITLE.as_ref().is_some_and(|title| title.find_iter(text).any(|title| holds(title.as_str())))
}

/// Checks that the text is JSON only, perhaps between ``` marks; false for JSON that is nested too
/// deep to read.
pub fn is_json(text: &str) -> bool {
    let mut text = strip(text);
    for mark in ["```json", "```Json", "```JSON", "```"] {
        text = text.strip_prefix(mark).unwrap_or(text);
    }
    loads(strip(text.strip_suffix("```").unwrap_or(text))).unwrap_or(false)
}
