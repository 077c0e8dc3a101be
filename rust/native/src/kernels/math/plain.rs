//! The number that math-verify reads in text without LaTeX: the last one, if the text around it
//! can't be part of an expression.

use crate::kernels::math::number::{Form, Number};

/// Returns the number that ends this text, perhaps with words after it; `None` if that isn't
/// certain.
pub fn last_number(text: &str) -> Option<Number> {
    let bytes = text.as_bytes();
    let last = bytes.iter().rposition(u8::is_ascii_digit)?;
    let behind = text.get(last + 1..)?;
    let (percent, behind) = match behind.trim_start_matches(' ').strip_prefix('%') {
        Some(rest) => (true, rest),
        None => (false, behind),
    };
    // This excludes "percent", operators, and signs that end LaTeX.
    let is_quiet = |byte: u8| byte.is_ascii_alphabetic() && !b"pP".contains(&byte) || b" \n.".contains(&byte);
    if !behind.bytes().all(is_quiet) {
        return None;
    }
    let is_token = |byte: &u8| byte.is_ascii_digit() || b",.-/".contains(byte);
    let first = bytes.get(..last)?.iter().rposition(|byte| !is_token(byte)).map_or(0, |place| place + 1);
    let token = text.get(first..=last)?;
    let before = text.get(..first)?;
    if !stands_alone(before) {
        return None;
    }
    if let Some((above, below)) = token.split_once('/') {
        // Python has no integers with leading zeros.
        let is_digits =
            |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()) && (part.len() < 2 || !part.starts_with('0'));
        let above_digits = above.strip_prefix('-').unwrap_or(above);
        let is_certain = is_digits(above_digits) && is_digits(below) && behind.is_empty() && !percent;
        // A currency sign before an expression does not begin one.
        let is_priced = before.ends_with('$');
        return (is_certain && !is_priced).then(|| Number::fraction(Form::Quotient, above, below, false))?;
    }
    let number = Number::decimal(token, false)?;
    Some(if percent { number.in_percent() } else { number })
}

/// Returns whether a number can begin after this text, and is not part of a larger expression.
fn stands_alone(before: &str) -> bool {
    let before = before.strip_suffix('$').unwrap_or(before);
    let trimmed = before.trim_end_matches([' ', '\n', '\t', '\r']);
    let Some(last) = trimmed.bytes().next_back() else { return true };
    if last == b'=' && trimmed.len() == before.len() {
        return true;
    }
    let joins = last.is_ascii_digit() || b".,+-*/^()%".contains(&last) || !last.is_ascii() || last < b' ';
    trimmed.len() < before.len() && !joins
}
