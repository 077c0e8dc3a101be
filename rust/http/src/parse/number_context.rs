//! What stands around a number says what it is: a sign, a label's number, a scale, not for sure.
//!
//! What comes after a number counts within its line only.

use super::ahead::Ahead;
use super::words::{is_blank, is_invisible, is_mark, is_word, last_word};

/// What stands before a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    Nothing,
    Minus,
    /// It numbers something: "Step 1".
    Label,
    /// "out of", "满分".
    Top,
    /// "between": another number follows.
    Between,
    Unclear,
}

/// What stands after a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum After {
    Nothing,
    /// "/10", "out of 10".
    Of(f64),
    /// "to 8", "or 8".
    To(f64),
    Percent,
    /// It is of a date, or of something else that is counted otherwise.
    Label,
    /// "点満点": what scores count up to.
    Top,
    Unclear,
}

/// Words whose numbers are no scores.
const LABELS: [&str; 25] = [
    "step",
    "steps",
    "criterion",
    "criteria",
    "part",
    "section",
    "question",
    "phase",
    "item",
    "example",
    "paragraph",
    "figure",
    "table",
    "turn",
    "round",
    "line",
    "stage",
    "chapter",
    "rule",
    "requirement",
    "assistant",
    "response",
    "candidate",
    "message",
    "page",
];
/// Between a score and what scores count up to.
const OF: [&str; 9] = ["out of", "of", "von", "sur", "de", "su", "sobre", "из", "av"];
/// Between two numbers of which neither is the score.
const TO: [&str; 6] = ["to", "or", "through", "bis", "à", "a"];
/// What scores are counted in.
const UNITS: [&str; 16] = [
    "points",
    "point",
    "pts",
    "stars",
    "star",
    "marks",
    "分",
    "点",
    "점",
    "Punkte",
    "Punkten",
    "puntos",
    "баллов",
    "балла",
    "баллов",
    "pontos",
];

/// What stands before the number that starts at `start`.
pub fn before(text: &str, start: usize) -> Before {
    let left = &text[..start];
    let Some(last) = left.chars().next_back() else { return Before::Nothing };
    let rest = &left[..left.len() - last.len_utf8()];
    let ahead_of_it = rest.chars().next_back();
    match last {
        '-' | '−' | '+' if stands_apart(ahead_of_it) => {
            if last == '+' {
                Before::Nothing
            } else {
                Before::Minus
            }
        }
        '>' if follows_bracket(rest) => Before::Nothing,
        '-' | '−' | '+' | '>' | '–' | '<' | '~' | '≈' | '±' | '≥' | '≤' | '^' | '/' | '#' | '.' | '∼' | '∓' | '@'
        | '№' => Before::Unclear,
        '第' => Before::Label,
        '{' if left.ends_with("frac{") || left.ends_with("}{") => Before::Unclear,
        _ if ends_with_any(left, &["满分", "滿分", "满分为", "满分是"]) => Before::Top,
        _ if is_invisible(last) => Before::Unclear,
        _ if is_blank(last) => after_blank(left),
        _ => Before::Nothing,
    }
}

/// What the text before a blank says about the number after it.
fn after_blank(left: &str) -> Before {
    let left = left.trim_end_matches(is_blank);
    let Some(last) = left.chars().next_back() else { return Before::Nothing };
    let rest = &left[..left.len() - last.len_utf8()];
    match last {
        '±' | '~' | '≈' | '<' | '≤' | '≥' | '^' | '/' | '+' => return Before::Unclear,
        '>' if !follows_bracket(rest) => return Before::Unclear,
        // "Score: - 7" may be minus seven.
        '-' | '−' | '–' if rest.trim_end_matches(is_blank).ends_with([':', '=']) => return Before::Unclear,
        _ => {}
    }
    // "1 000" may be a thousand; it is told by the digits on both sides.
    let (before_word, word) = last_word(left.trim_end_matches(['*', '_', '`', '(']));
    let word = word.to_lowercase();
    if LABELS.contains(&word.as_str()) {
        return Before::Label;
    }
    match word.as_str() {
        "of" if last_word(before_word.trim_end_matches(is_blank)).1.eq_ignore_ascii_case("out") => Before::Top,
        "between" => Before::Between,
        "minus" | "negative" | "about" | "around" | "roughly" | "approximately" | "almost" | "nearly" | "than"
        | "not" | "n't" | "never" | "under" | "over" | "below" | "above" => Before::Unclear,
        _ => Before::Nothing,
    }
}

/// Whether a sign belongs to the number after it, by what stands before the sign.
fn stands_apart(before_sign: Option<char>) -> bool {
    before_sign.is_none_or(|letter| {
        letter.is_whitespace()
            || matches!(
                letter,
                '(' | '[' | '{' | '*' | '_' | '`' | '"' | '\'' | '=' | ':' | ',' | ';' | '|' | '>' | '$'
            )
    })
}

/// Whether ">" after this ends a tag or an arrow, and is not "greater than".
fn follows_bracket(rest: &str) -> bool {
    rest.ends_with(|letter: char| {
        letter.is_alphanumeric() || matches!(letter, '"' | '\'' | '/' | '-' | '=' | '>' | '|' | '_')
    })
}

fn ends_with_any(text: &str, ends: &[&str]) -> bool {
    ends.iter().any(|end| text.ends_with(end))
}

/// What stands after a number that ends at `ahead`, which is left behind what belongs to it.
pub fn after(ahead: &mut Ahead<'_>) -> After {
    let end = ahead.at;
    let found = next_to(ahead).unwrap_or_else(|| related(ahead));
    if !matches!(found, After::Of(_) | After::To(_)) {
        ahead.at = end;
    }
    found
}

/// What stands right beside the number.
fn next_to(ahead: &mut Ahead<'_>) -> Option<After> {
    let end = ahead.at;
    match ahead.peek()? {
        '%' | '٪' => return Some(After::Percent),
        '^' | '+' | '~' | '±' | '°' | '-' | '–' | '−' | '½' | '²' | '³' => return Some(After::Unclear),
        letter if is_invisible(letter) => return Some(After::Unclear),
        '年' | '月' | '日' | '号' => return Some(After::Label),
        '.' | ')' => {
            // The number of a list's item, if something follows: then the end of the text counts.
            ahead.next();
            ahead.skip(|letter| is_blank(letter) || matches!(letter, '*' | '_'));
            ahead.peek();
        }
        ' ' | '\u{A0}' => {
            // "1 000".
            ahead.next();
            let digits = ahead.skip(|letter| letter.is_ascii_digit());
            if ahead.at - digits == 3 && !ahead.peek().is_some_and(is_word) {
                return Some(After::Unclear);
            }
        }
        '点' | '點' if ahead.eat("点満点") => return Some(After::Top),
        '分' if ahead.eat("分之") => return Some(After::Unclear),
        _ => {}
    }
    ahead.at = end;
    None
}

/// Another number, or a sign, that belongs to this one.
fn related(ahead: &mut Ahead<'_>) -> After {
    let end = ahead.at;
    let beside = ahead.peek() == Some('/');
    skip_loose(ahead);
    for unit in UNITS {
        let before = ahead.at;
        if ahead.eat(unit) {
            if ahead.peek().is_some_and(is_word) {
                ahead.at = before;
                continue;
            }
            skip_loose(ahead);
            break;
        }
    }
    if ahead.eat("%") || ahead.eat("percent") || ahead.eat("per cent") {
        return After::Percent;
    }
    if ahead.eat("/") {
        skip_loose(ahead);
        return match number(ahead) {
            Some(Ok(top)) => After::Of(top),
            Some(Err(())) => After::Unclear,
            None if beside => After::Unclear,
            None => After::Nothing,
        };
    }
    if let Some(top) = joined_by(ahead, &OF) {
        return top.map_or(After::Unclear, After::Of);
    }
    if let Some(other) = joined_by(ahead, &TO) {
        return other.map_or(After::Unclear, After::To);
    }
    let spaced = ahead.at > end;
    if spaced && (ahead.eat("-") || ahead.eat("–")) {
        skip_loose(ahead);
        return match number(ahead) {
            Some(other) => other.map_or(After::Unclear, After::To),
            None => After::Nothing,
        };
    }
    After::Nothing
}

/// "and" and a number, behind the first number after "between".
pub fn and_another(ahead: &mut Ahead<'_>) -> After {
    let end = ahead.at;
    skip_loose(ahead);
    match joined_by(ahead, &["and", "und", "et", "y"]) {
        Some(other) => other.map_or(After::Unclear, After::To),
        None => {
            ahead.at = end;
            After::Nothing
        }
    }
}

fn skip_loose(ahead: &mut Ahead<'_>) {
    ahead.skip(|letter| is_blank(letter) || is_mark(letter));
}

/// The number behind one of these words.
fn joined_by(ahead: &mut Ahead<'_>, words: &[&str]) -> Option<Result<f64, ()>> {
    let start = ahead.at;
    for word in words {
        if ahead.eat(word) && !ahead.peek().is_some_and(is_word) {
            skip_loose(ahead);
            if let Some(number) = number(ahead) {
                return Some(number);
            }
        }
        ahead.at = start;
    }
    None
}

/// A number with nothing glued to it; `Err` if something is.
fn number(ahead: &mut Ahead<'_>) -> Option<Result<f64, ()>> {
    let number = ahead.number()?;
    let end = ahead.at;
    let glued = match ahead.next() {
        Some(letter) if is_word(letter) || matches!(letter, '/' | '%' | '^' | '½') => true,
        Some(',' | '.' | '-' | ':' | '–' | '+' | '\'') => ahead.peek().is_some_and(|next| next.is_ascii_digit()),
        _ => false,
    };
    ahead.at = end;
    Some(if glued { Err(()) } else { Ok(number) })
}
