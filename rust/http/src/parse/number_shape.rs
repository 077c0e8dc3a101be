//! What a token with digits in it is by itself: a number, part of a name, or unclear.

/// A token, read without what stands around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Part of a name, an ordinal, an amount with its unit, a date: no score.
    Name,
    Number(f64),
    /// "9/10".
    Fraction(f64, f64),
    /// "7-8".
    Span(f64, f64),
    /// "3,5", "1,000", "12:30", "8½".
    Unclear,
}

/// Whether `joint` makes one token of what stands on both sides of it.
pub const fn joins(before: char, joint: char, after: char) -> bool {
    let digits = before.is_ascii_digit() && after.is_ascii_digit();
    match joint {
        '-' | '_' | '.' | '\'' | '’' | '\u{2010}' | '\u{2011}' => true,
        ',' | ':' | '/' | '+' | '*' | '=' | '^' | '×' | '·' | '–' | '—' | '−' | '~' | '\u{A0}' | '\u{202F}'
        | '\u{2009}' | '٫' | '٬' => digits,
        _ => false,
    }
}

/// Units and ordinals behind digits that are no part of a score.
const UNITS: [&str; 26] = [
    "st", "nd", "rd", "th", "b", "m", "k", "gb", "mb", "kb", "tb", "ms", "x", "d", "px", "hz", "km", "cm", "mm", "kg",
    "am", "pm", "bit", "mm2", "gb/s", "fps",
];
/// Words behind a number and a hyphen: "a 10-point scale", "a 3-step proof".
const COMPOUNDS: [&str; 18] = [
    "point",
    "points",
    "step",
    "page",
    "word",
    "line",
    "sentence",
    "paragraph",
    "year",
    "day",
    "bit",
    "shot",
    "way",
    "fold",
    "digit",
    "part",
    "token",
    "turn",
];

pub fn shape(token: &str) -> Shape {
    if token.chars().any(|letter| !letter.is_ascii() && letter.is_numeric()) {
        return Shape::Unclear;
    }
    let starts_as_number = token.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    if !starts_as_number {
        return Shape::Name;
    }
    let Some(letters) = token.find(|letter: char| letter.is_alphabetic() || letter == '_') else {
        return plain(token);
    };
    if let Some(exponential) = exponential(token) {
        return Shape::Number(exponential);
    }
    let (number, suffix) = token.split_at(letters);
    let (unit, _) = suffix.split_once(['-', '\'', '’']).unwrap_or((suffix, ""));
    let compound = number.strip_suffix(['-', '\u{2010}', '\u{2011}']);
    match compound {
        Some(number) if decimal(number).is_some() && COMPOUNDS.contains(&unit.to_lowercase().as_str()) => Shape::Name,
        None if decimal(number).is_some() && UNITS.contains(&unit.to_lowercase().as_str()) => Shape::Name,
        _ => Shape::Unclear,
    }
}

/// A token without letters.
fn plain(token: &str) -> Shape {
    if let Some(number) = decimal(token) {
        return Shape::Number(number);
    }
    let pair = |joints: &[char]| {
        let (first, second) = token.split_once(joints)?;
        Some((decimal(first)?, decimal(second)?))
    };
    if let Some((first, second)) = pair(&['/']) {
        return Shape::Fraction(first, second);
    }
    if let Some((first, second)) = pair(&['-', '–', '—', '\u{2010}', '\u{2011}', '~']) {
        return Shape::Span(first, second);
    }
    if is_date(token) || is_version(token) { Shape::Name } else { Shape::Unclear }
}

/// Digits with at most one point, without zeros that no number begins with.
fn decimal(token: &str) -> Option<f64> {
    let (whole, fraction) = token.split_once('.').unwrap_or((token, "0"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let padded = whole.len() > 1 && whole.starts_with('0');
    (digits(whole) && digits(fraction) && !fraction.is_empty() && !padded).then(|| token.parse().ok())?
}

fn exponential(token: &str) -> Option<f64> {
    let (mantissa, exponent) = token.split_once(['e', 'E'])?;
    let digits = exponent.strip_prefix('-').unwrap_or(exponent);
    let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    decimal(mantissa).filter(|_| whole)?;
    token.parse().ok()
}

/// 2024-05-01, 5/1/2024, 01.05.2024.
fn is_date(token: &str) -> bool {
    let parts: Vec<usize> = token.splitn(4, ['-', '/', '.']).map(str::len).collect();
    let digits = token.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'/' | b'.'));
    digits && matches!(parts[..], [4, 1..=2, 1..=2] | [1..=2, 1..=2, 2 | 4])
}

/// 1.2.3.
fn is_version(token: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    token.split('.').count() > 2 && token.split('.').all(digits)
}

/// Whether a number with three digits behind its point may have been meant as thousands.
pub fn may_be_thousands(token: &str, value: f64) -> bool {
    value >= 1.0 && token.split_once('.').is_some_and(|(_, fraction)| fraction.len() == 3)
}
