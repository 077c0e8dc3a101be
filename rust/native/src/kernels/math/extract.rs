//! Finds the part of a text that math-verify takes as its answer, if only one is possible.
//!
//! - math-verify tries patterns in order: "final answer is", boxes, "answer", then any LaTeX or
//!   number; the match that ends last wins. A text is decided only if just one of these can match.

use memchr::{memchr, memchr2_iter, memmem};

use crate::kernels::math::latex;
use crate::kernels::math::plain::last_number;
use crate::kernels::math::value::Value;

/// Result of the search in a text.
#[derive(Debug, PartialEq)]
pub enum Extraction<'a> {
    Nothing,
    Value(Value<'a>),
    Unknown,
}

const BOX: &[u8] = b"\\boxed";

/// Finds the answer by math-verify's defaults: LaTeX or a number, anywhere.
pub fn found_by_default(text: &str) -> Extraction<'_> {
    let bytes = text.as_bytes();
    if word_answer(bytes).is_some() || has_unreadable_number(text) {
        return Extraction::Unknown;
    }
    if memmem::find(bytes, BOX).is_some() {
        return of(boxed(text));
    }
    if let Some(inside) = enclosed(text) {
        return of(latex::read(inside).filter(|_| !ends_behind_unit(inside)));
    }
    if text.starts_with("\\frac{") || text.starts_with("-\\frac{") {
        // Outside of LaTeX a fraction of integers counts, alone among commands.
        return of(latex::read(text).filter(|value| matches!(value, Value::Number(_)) && text.ends_with('}')));
    }
    if !has_digit(text) && !has_latex(bytes) {
        return Extraction::Nothing;
    }
    // The number that ends the text ends after all LaTeX.
    of(last_number(text).map(Value::Number))
}

/// Finds the answer as TRL's `accuracy_reward` does: a box, or LaTeX behind the word "answer".
pub fn found_by_box(text: &str) -> Extraction<'_> {
    let bytes = text.as_bytes();
    if memmem::find(bytes, BOX).is_some() {
        return of(boxed(text));
    }
    match word_answer(bytes) {
        Some(place) if bytes.get(place..).is_some_and(has_latex) => Extraction::Unknown,
        _ => Extraction::Nothing,
    }
}

fn of(value: Option<Value<'_>>) -> Extraction<'_> {
    value.map_or(Extraction::Unknown, Extraction::Value)
}

/// Returns the answer in the boxes of a text, if all boxes have the same contents.
fn boxed(text: &str) -> Option<Value<'_>> {
    let bytes = text.as_bytes();
    if memmem::find(bytes, b"I hope").is_some() || memmem::find(bytes, b"\\fbox").is_some() {
        return None;
    }
    let mut first: Option<(&str, usize)> = None;
    let (mut end, mut boxes) = (0, 0);
    for place in memmem::find_iter(bytes, BOX) {
        let rest = text.get(place + BOX.len()..)?.strip_prefix('{')?;
        let length = balanced(rest)?;
        let content = rest.get(..length)?.trim();
        let is_other = first.is_some_and(|(inside, _)| inside != content || place < end + NEAR_BOXES);
        if is_other {
            return None;
        }
        end = place + BOX.len() + 1 + length + 1;
        first.get_or_insert((content, end));
        boxes += 1;
    }
    let (inside, first_end) = first?;
    let behind = text.get(first_end..)?;
    if memchr(b'%', behind.as_bytes()).is_some()
        || behind.contains("ercent")
        || behind.contains("pct")
        || behind.contains("Pct")
    {
        return None; // read as percent if LaTeX around the box ends there
    }
    // Signs that end LaTeX around a box would cut its contents.
    let is_cut = inside.strip_prefix("\\$").unwrap_or(inside).contains(['$', '\n', '[', ']'])
        || inside.contains("\\(")
        || inside.contains("\\)");
    let value = if is_cut { None } else { latex::read(inside) }?;
    // Several boxes may be read as a set, which equals the number in it.
    (boxes == 1 || matches!(value, Value::Number(_))).then_some(value)
}

/// Boxes nearer to each other may be read as one answer of several parts.
const NEAR_BOXES: usize = 12;

/// Returns the length of the contents of a `{`; `None` if it isn't closed, or braces are escaped.
fn balanced(text: &str) -> Option<usize> {
    let mut open = 1_usize;
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' => open -= 1,
            _ => continue,
        }
        if place > 0 && text.as_bytes().get(place - 1) == Some(&b'\\') {
            return None;
        }
        if open == 0 {
            return Some(place);
        }
    }
    None
}

/// Returns the text between delimiters of LaTeX, if they enclose the whole text.
fn enclosed(text: &str) -> Option<&str> {
    for (begin, end) in [("$$", "$$"), ("$", "$"), ("\\[", "\\]"), ("\\(", "\\)")] {
        let Some(inside) = text.strip_prefix(begin).and_then(|text| text.strip_suffix(end)) else { continue };
        let is_one = !inside.ends_with('\\') && !inside.contains(['$', '\n']) && !inside.contains(end);
        return (is_one && !inside.is_empty()).then_some(inside);
    }
    None
}

/// Returns whether blanks end LaTeX that contains words: math-verify keeps a unit before them as a
/// factor.
fn ends_behind_unit(latex: &str) -> bool {
    latex.ends_with([' ', '\t']) && ["\\text", "\\mbox", "\\math"].iter().any(|words| latex.contains(words))
}

/// Returns whether the text has a number that makes math-verify's parser fail: `-05`, or digits of
/// another script.
fn has_unreadable_number(text: &str) -> bool {
    let is_digit = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    memmem::find_iter(text.as_bytes(), b"-0").any(|at| is_digit(at + 2))
        || (!text.is_ascii() && text.chars().any(|one| !one.is_ascii() && one.is_numeric()))
}

/// Returns whether the text has a sign that can begin LaTeX.
fn has_latex(bytes: &[u8]) -> bool {
    memchr::memchr3(b'$', b'\\', b'[', bytes).is_some()
}

/// Returns whether the text has a digit of any script.
fn has_digit(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit()) || (!text.is_ascii() && text.chars().any(char::is_numeric))
}

/// Returns the first position of "answer", ignoring case; a long s counts as s, as in Python.
fn word_answer(bytes: &[u8]) -> Option<usize> {
    let long_s = memmem::find(bytes, "ſ".as_bytes());
    let plain = memchr2_iter(b'w', b'W', bytes).find_map(|place| {
        let first = place.checked_sub(3)?;
        bytes.get(first..first + 6)?.eq_ignore_ascii_case(b"answer").then_some(first)
    });
    match (long_s, plain) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
