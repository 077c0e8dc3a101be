//! Reads the LaTeX of an answer: the contents of a box or between dollar signs.

use crate::kernels::math::number::{Form, Number};
use crate::kernels::math::value::Value;

/// Longer LaTeX is left to math-verify, whose parser may take long.
const LONGEST: usize = 80;
/// Letters that math-verify reads as numbers or operators.
const ODD_LETTERS: &str = "iI";
const ODD_NAMES: &str = "eEiI";
/// Words that math-verify rewrites before parsing.
const ODD_WORDS: [&str; 8] = ["inf", "ercent", "pct", "and", "or", "th", "i", "sqrt"];

/// Returns the value of LaTeX; `None` if no rule is certain.
pub fn read(text: &str) -> Option<Value<'_>> {
    let text = text.trim_matches([' ', '\n', '\t']);
    if text.is_empty() || text.len() > LONGEST || !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return None;
    }
    number(text)
        .map(Value::Number)
        .or_else(|| assignment(text))
        .or_else(|| word(text))
        .or_else(|| is_stable(text).then_some(Value::Latex(text)))
}

/// `\$1,234.50`, `5\%`, `90^\circ`, `5 \text{ dollars}`, `-\frac{1}{2}`, `1/2`.
fn number(text: &str) -> Option<Number> {
    let text = text.strip_prefix("\\$").unwrap_or(text).trim_start_matches(' ');
    if let Some(text) = text.strip_suffix('%') {
        let text = text.strip_suffix('\\').unwrap_or(text);
        let text = text.strip_suffix(' ').unwrap_or(text);
        // math-verify reads 1,800 % as two numbers, and may fail at leading zeros or two blanks.
        let is_plain = !text.contains(',') && !is_padded_with_zeros(text);
        return Number::decimal(text, true).filter(|_| is_plain).map(Number::in_percent);
    }
    let text = without_unit(text);
    if let Some(number) = Number::decimal(text, true) {
        return Some(number);
    }
    let (text, negative) = text.strip_prefix('-').map_or((text, false), |text| (text, true));
    let number = fraction(text)?;
    Some(if negative { number.negated() } else { number })
}

fn is_padded_with_zeros(number: &str) -> bool {
    let digits = number.trim_start_matches(['-', '+']);
    digits.starts_with('0') && digits.as_bytes().get(1).is_some_and(u8::is_ascii_digit)
}

fn without_unit(text: &str) -> &str {
    for degrees in ["^\\circ", "^{\\circ}"] {
        // math-verify does not read commas of thousands in an angle.
        if let Some(text) = text.strip_suffix(degrees).filter(|text| !text.contains(',')) {
            return text;
        }
    }
    let unit = text.split_once("\\text{").and_then(|(before, unit)| Some((before, unit.strip_suffix('}')?)));
    let is_plain = |unit: &str| {
        let lower = unit.trim().to_ascii_lowercase();
        unit.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b' ')
            && lower.len() > 1
            && !ODD_WORDS.iter().any(|odd| lower.split(' ').any(|word| word == *odd))
            && !["inf", "ercent", "pct"].iter().any(|odd| lower.contains(odd))
    };
    match unit {
        Some((before, unit)) if is_plain(unit) => before.trim_end_matches(' '),
        _ => text,
    }
}

fn fraction(text: &str) -> Option<Number> {
    if let Some((above, below)) = text.split_once('/') {
        let is_short = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        return (is_short(above) && is_short(below)).then(|| Number::fraction(Form::Ratio, above, below, false))?;
    }
    let rest = ["\\frac{", "\\dfrac{", "\\tfrac{"].iter().find_map(|begin| text.strip_prefix(begin))?;
    let (above, below) = rest.strip_suffix('}')?.split_once("}{")?;
    Number::fraction(Form::Ratio, above, below, false)
}

/// `x = 5`.
fn assignment(text: &str) -> Option<Value<'_>> {
    let (name, rest) = text.split_once('=')?;
    let name = name.trim_end_matches(' ');
    let letter = name.chars().next().filter(|letter| name.len() == 1 && letter.is_ascii_alphabetic())?;
    if ODD_NAMES.contains(letter) {
        return None;
    }
    let rest = rest.trim_start_matches(' ');
    if rest.contains(',') {
        return None; // math-verify reads it as a list of equations
    }
    let number = Number::decimal(rest, false).or_else(|| fraction(rest))?;
    Some(Value::Assignment(letter, number))
}

/// `A`, `(A)`, `\text{Yes}`, `\textbf{(A)}`.
fn word(text: &str) -> Option<Value<'_>> {
    let wrapped = ["\\text{", "\\textbf{", "\\mathrm{", "\\textrm{"];
    let inside = wrapped.iter().find_map(|begin| text.strip_prefix(begin)?.strip_suffix('}'));
    let bare = inside.unwrap_or(text);
    let bare = bare.strip_prefix('(').and_then(|bare| bare.strip_suffix(')')).unwrap_or(bare);
    let letters = bare.len();
    if letters == 0 || !bare.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return None;
    }
    if letters == 1 {
        return (!ODD_LETTERS.contains(bare)).then_some(Value::Word(bare));
    }
    let lower = bare.to_ascii_lowercase();
    let is_odd = ODD_WORDS.iter().any(|odd| lower.contains(odd));
    let is_text = text.starts_with("\\text{") && bare.len() == inside.map_or(0, str::len);
    (is_text && !is_odd).then_some(Value::Word(bare))
}

/// Returns whether both of math-verify's ways to normalise it give the same non-empty text: then
/// equal LaTeX is equal.
fn is_stable(text: &str) -> bool {
    let begins = text.starts_with(|first: char| first.is_ascii_alphanumeric() || "(-[".contains(first))
        || ["\\frac{", "\\sqrt{", "\\pi", "\\left("].iter().any(|begin| text.starts_with(begin));
    let follows = |command: &str| text.split(command).skip(1).all(|rest| rest.starts_with('{'));
    let is_rewritten = text.contains("^(")
        || text.contains("^ (")
        || text.contains("log_")
        || text.matches("sqrt").count() != text.matches("\\sqrt{").count()
        || !follows("frac")
        || (text.contains("frac") && is_digit_behind_brace(text))
        || text.contains(" .")
        || text.contains("{.")
        || text.ends_with('\\')
        || text.contains("/0")
        || text.bytes().all(|byte| byte.is_ascii_digit() || b"-/".contains(&byte));
    // Powers of powers and factorials may take too long to parse.
    let is_costly = text.contains('!') || text.matches('^').count() > 4 || text.contains("^{^") || has_long_power(text);
    begins
        && !is_rewritten
        && !is_costly
        && !text.contains(['$', '~', '"', '\'', '`', '#', '%', '&', '@'])
        && !text.contains("\\\\")
        && text.bytes().any(|byte| byte.is_ascii_alphanumeric())
}

fn is_digit_behind_brace(text: &str) -> bool {
    let digit = |rest: &str| rest.trim_start_matches(' ').starts_with(|first: char| first.is_ascii_digit());
    text.split('}').skip(1).any(digit)
}

/// Returns whether it has a power with more than two digits, or a power of a power.
fn has_long_power(text: &str) -> bool {
    text.split('^').skip(1).any(|power| {
        let power = power.trim_start_matches([' ', '{']);
        let digits = power.bytes().take_while(u8::is_ascii_digit).count();
        digits > 2 || power.get(digits..).is_some_and(|rest| rest.trim_start_matches(['}', ' ']).starts_with('^'))
    })
}
