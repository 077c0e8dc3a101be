//! Reads a field of the JSON that an answer is or holds.
//!
//! - Only whole objects count: the contents of one that can't be read are skipped.
//! - Braces that begin no object, as in LaTeX, are passed over.

use serde_json::Value;

use super::candidates::{Candidate, Unread, Which, choose};
use super::range::Range;
use super::strict_json::first_value;
use super::value::judged;
use crate::json_path::JsonPath;

/// The score in the field at a path.
pub fn json_field(text: &str, path: &JsonPath, which: Which, range: Option<Range>) -> Result<Candidate, Unread> {
    let (array, mut seen) = (starts_with_array(text), false);
    let of = |value: &Value| path.one(value).map(|value| judged(value, range));
    if let Some(value) = array.then(|| whole(text)).flatten() {
        return of(&value).map(|reading| Candidate::new(reading, false)).ok_or_else(|| no_field(path));
    }
    let candidates = objects(text).filter_map(|object| {
        seen = true;
        let reading = object.map_or_else(|| Some(Err(BROKEN.to_owned())), |value| of(&value));
        reading.map(|reading| Candidate::new(reading, !array))
    });
    match choose(which, candidates) {
        Err(Unread::Missing) if seen => Err(no_field(path)),
        found => found,
    }
}

pub const BROKEN: &str = "JSON that can't be read (not valid, or with a name twice)";

fn no_field(path: &JsonPath) -> Unread {
    Unread::Unclear(format!("no field {path}"))
}

fn starts_with_array(text: &str) -> bool {
    without_code_mark(text).starts_with('[')
}

/// The JSON that a whole text is.
fn whole(text: &str) -> Option<Value> {
    let text = without_code_mark(text);
    let text = &escaped(text);
    let (value, end) = first_value(text)?;
    matches!(text[end..].trim(), "" | "```").then_some(value)
}

/// A text that begins with a code block, without the block's first line.
fn without_code_mark(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix("```").and_then(|rest| rest.split_once('\n')).map_or(text, |(_, rest)| rest.trim_start())
}

/// The objects in a text that are in no other one, in order; `None` for one that can't be read.
pub fn objects(text: &str) -> impl Iterator<Item = Option<Value>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let start = from + text[from..].find('{')?;
            let inside = text[start + 1..].trim_start();
            if !inside.starts_with(['"', '\'', '}']) {
                from = start + 1;
                continue;
            }
            if let Some((value, length)) = first_value(&text[start..]) {
                from = start + length;
                return Some(Some(value));
            }
            from = end_of_object(text, start);
            let escaped = escaped(&text[start..from]);
            return Some(first_value(&escaped).filter(|(_, length)| *length == escaped.len()).map(|(value, _)| value));
        }
    })
}

/// JSON with the control characters of its texts escaped, which judges write as they are: a text of
/// several lines.
fn escaped(json: &str) -> String {
    let (mut quoted, mut escaped, mut found) = (false, false, String::with_capacity(json.len()));
    for letter in json.chars() {
        if quoted && letter.is_ascii_control() {
            found.push_str(&format!("\\u{:04x}", u32::from(letter)));
        } else {
            found.push(letter);
        }
        quoted ^= letter == '"' && !escaped;
        escaped = quoted && letter == '\\' && !escaped;
    }
    found
}

/// Returns the end of an object that can't be read: at its last brace, or at the text's end.
fn end_of_object(text: &str, start: usize) -> usize {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (offset, byte) in text[start..].bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' if !quoted => depth += 1,
            b'}' if !quoted => {
                depth -= 1;
                if depth == 0 {
                    return start + offset + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}
