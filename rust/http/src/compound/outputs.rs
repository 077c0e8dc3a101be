//! Compares the output of a program with the expected one, for sandboxes and for programs on this
//! machine (`tests/code/test_compare.py` has the cases). Shows texts in reasons.
//!
//! - White space is Python's: what `str.split` splits at.
//! - Numbers with other digits than 0 to 9 are compared as texts.

use serde::Deserialize;

/// When an output is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outputs {
    /// Ignores white space at the ends of lines and of the text.
    Exact,
    /// Ignores any white space.
    Tokens,
    /// Tokens, and numbers but for a millionth, absolute or of their value; two integers are
    /// the same or not.
    Numbers,
}

const RELATIVE: f64 = 1e-6;
const ABSOLUTE: f64 = 1e-6;
/// A float takes at most some 330 characters.
const LONGEST_NUMBER: usize = 400;
/// Longest part of a text that a reason shows, in characters.
const SHOWN: usize = 80;

impl Outputs {
    /// Returns whether `printed` is the expected output.
    #[must_use]
    pub fn matches(self, expected: &str, printed: &str) -> bool {
        match self {
            Self::Exact => lines(expected).eq(lines(printed)),
            Self::Tokens => tokens(expected).eq(tokens(printed)),
            Self::Numbers => {
                let (mut ours, mut theirs) = (tokens(expected), tokens(printed));
                loop {
                    match (ours.next(), theirs.next()) {
                        (None, None) => return true,
                        (Some(one), Some(other)) if same_token(one, other) => {}
                        _ => return false,
                    }
                }
            }
        }
    }
}

fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\x1c'..='\x1f').contains(&character)
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.trim_end_matches(is_space).split('\n').map(|line| line.trim_end_matches(is_space))
}

fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_space).filter(|token| !token.is_empty())
}

fn same_token(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    if one.chars().count().max(other.chars().count()) > LONGEST_NUMBER {
        return false;
    }
    if let (Some(one), Some(other)) = (integer(one), integer(other)) {
        return one == other;
    }
    match (float(one), float(other)) {
        (Some(one), Some(other)) => close(one, other),
        _ => false,
    }
}

/// The sign and digits of an integer, in their one shortest form.
fn integer(token: &str) -> Option<(bool, &str)> {
    let digits = token.strip_prefix(['+', '-']).unwrap_or(token);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    Some((token.starts_with('-') && !digits.is_empty(), digits))
}

/// The number that a text is; none where no float holds it.
fn float(token: &str) -> Option<f64> {
    let number: f64 = token.parse().ok()?;
    let is_infinite_by_name = || !token.bytes().any(|byte| byte.is_ascii_digit());
    (number.is_finite() || is_infinite_by_name()).then_some(number)
}

fn close(one: f64, other: f64) -> bool {
    if one == other || (one.is_nan() && other.is_nan()) {
        return true;
    }
    if one.is_infinite() || other.is_infinite() {
        return false;
    }
    let apart = (one - other).abs();
    apart <= (RELATIVE * one).abs() || apart <= (RELATIVE * other).abs() || apart <= ABSOLUTE
}

/// A text for a reason, as Python shows it: short, in quotation marks.
#[must_use]
pub fn shown(text: &str) -> String {
    let quote = {
        let beginning = || text.chars().take(SHOWN + 1);
        if beginning().any(|one| one == '\'') && !beginning().any(|one| one == '"') { '"' } else { '\'' }
    };
    let mut out = String::from(quote);
    for character in text.chars().take(SHOWN + 1) {
        match character {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            one if one == quote => out.extend(['\\', one]),
            one => push_printable(one, &mut out),
        }
    }
    out.push(quote);
    cut(&out, SHOWN)
}

/// A program's words for terminals and files: no control characters.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|character| push_printable(character, &mut out));
    out
}

/// The first characters of a text.
#[must_use]
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn push_printable(character: char, out: &mut String) {
    let code = u32::from(character);
    let invisible = matches!(code, 0xad | 0x061c | 0x180e | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f
        | 0xd800..=0xf8ff | 0xfeff | 0xfff0..=0xfffb | 0xe0000..);
    if character == ' ' || !(character.is_control() || is_space(character) || invisible) {
        out.push(character);
        return;
    }
    out.push_str(&match code {
        0..0x100 => format!("\\x{code:02x}"),
        0x100..0x10000 => format!("\\u{code:04x}"),
        _ => format!("\\U{code:08x}"),
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_reason_shows_a_text_as_python_does() {
        assert_eq!(shown("3\n"), r"'3\n'");
        assert_eq!(shown("it's"), "\"it's\"");
        assert_eq!(shown("\x1b[2J\u{202e}ä"), r"'\x1b[2J\u202eä'");
        assert_eq!(shown(&"x".repeat(500)).chars().count(), SHOWN + 1);
        assert_eq!(printable("a\x07\u{2028}b"), r"a\x07\u2028b");
    }

    proptest! {
        #[test]
        fn a_text_is_what_it_is(text in "\\PC*|[ -~\\n]*", rule in 0..3) {
            let rule = [Outputs::Exact, Outputs::Tokens, Outputs::Numbers][rule as usize];
            let longer = format!("{text} \n");
            prop_assert!(rule.matches(&text, &text) && rule.matches(&text, &longer));
            prop_assert!(shown(&text).chars().count() <= SHOWN + 1);
            prop_assert!(!printable(&text).chars().any(char::is_control));
        }
    }
}
