//! Splits an answer into lines, sentences and tokens, for the verdict grammar.
//!
//! - Marks of emphasis, headings, lists, code, boxes and tables are dropped; they never join two
//!   words.
//! - Quoted lines (`> …`) are not the judge's own words.
//! - A digit beside anything but the marks of a plain number makes a `Token::Odd`, never a number.
//! - A number of three decimals above 1 is odd: "1.000" may be a thousand.

use super::candidates::Unread;
use super::digits::with_ascii_digits;

/// Words whose dot ends no sentence before a number: "max. 10", "No. 7", and so "Yes. 7".
const ABBREVIATIONS: [&str; 16] =
    ["max", "min", "approx", "ca", "circa", "vs", "no", "yes", "cf", "e.g", "i.e", "al", "fig", "eq", "sec", "est"];
/// Commands of LaTeX and tags of HTML that only change how a text looks.
const LAYOUT: [&str; 11] =
    ["\\boxed", "\\text", "\\mathbf", "\\(", "\\)", "\\[", "\\]", "<b>", "</b>", "<strong>", "</strong>"];

/// Letters that occur in no answer; they replace the parts read before.
pub const PLACES: std::ops::RangeInclusive<char> = '\u{E000}'..='\u{F8FF}';

/// The mark of a hyphen between blanks, which is a dash or a minus.
pub const SPACED_HYPHEN: char = '–';

/// Tokens of a sentence that can be a verdict.
const MOST_TOKENS: usize = 4096;
/// Sentences of an answer that is read.
const MOST_SENTENCES: usize = 1 << 16;
/// Bytes of a sentence that are kept for messages.
const SHOWN: usize = 4096;

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// A word in lower case, and in its original form.
    Word(String, String),
    Number(f64),
    /// Digits that are not a plain number: "GPT-4", "7-8", "3,5", "2nd".
    Odd(String),
    Mark(char),
}

impl Token {
    pub fn is(&self, word: &str) -> bool {
        self.word() == Some(word)
    }

    pub fn word(&self) -> Option<&str> {
        if let Self::Word(word, _) = self { Some(word) } else { None }
    }

    pub fn is_mark(&self, marks: &[char]) -> bool {
        matches!(self, Self::Mark(mark) if marks.contains(mark))
    }

    pub const fn has_digits(&self) -> bool {
        matches!(self, Self::Number(_) | Self::Odd(_))
    }
}

#[derive(Clone, Debug)]
pub struct Sentence {
    /// Its beginning, for messages.
    pub text: String,
    pub tokens: Vec<Token>,
    /// It ends with a full stop or an exclamation mark.
    pub ended: bool,
    pub question: bool,
    pub starts_line: bool,
    pub ends_line: bool,
}

/// The sentences of a text that have words. A text that was `cut` has those that ended and have
/// more text behind them. A text of too many is unclear: it would take many times its length in
/// memory.
pub fn sentences(text: &str, cut: bool) -> Result<Vec<Sentence>, Unread> {
    let text = with_ascii_digits(text);
    let mut found = Vec::new();
    let finished = if cut { text.rfind('\n').map_or(0, |end| end + 1) } else { text.len() };
    for line in text[..finished].lines() {
        split(&cleaned(line), &mut found);
    }
    let rest = &text[finished..];
    // The text of a command or a tag is complete only at its end.
    if !rest.is_empty() && !rest.contains(['\\', '<']) {
        let before = found.len();
        split(&cleaned(rest), &mut found);
        found.truncate(found.len().saturating_sub(1).max(before));
    }
    if found.len() > MOST_SENTENCES {
        return Err(Unread::Unclear(format!("more than {MOST_SENTENCES} sentences")));
    }
    Ok(found)
}

/// The tokens of a text that is one phrase.
pub fn phrase(text: &str) -> Vec<Token> {
    tokens(&cleaned(&with_ascii_digits(text)))
}

/// A line without marks of layout.
fn cleaned(line: &str) -> String {
    let line = line.trim();
    if line.starts_with('>') || line.starts_with("```") || line.starts_with("~~~") {
        return String::new();
    }
    let mut kept = String::with_capacity(line.len());
    let mut dropped = false;
    let mut rest = line;
    while let Some(letter) = rest.chars().next() {
        if matches!(letter, '\\' | '<')
            && let Some(command) = LAYOUT.iter().find(|command| rest.starts_with(**command))
        {
            (rest, dropped) = (&rest[command.len()..], true);
            continue;
        }
        let after = &rest[letter.len_utf8()..];
        let (mark, after) = match letter {
            '[' if after.starts_with('[') => (Some('⟦'), &after[1..]),
            ']' if after.starts_with(']') => (Some('⟧'), &after[1..]),
            '_' if kept.ends_with(is_word) && after.starts_with(is_word) => (Some('_'), after),
            '*' | '_' | '`' | '$' | '{' | '}' | '[' | ']' | '|' => (None, after),
            other => (Some(other), after),
        };
        if let Some(mark) = mark {
            if dropped && is_word(mark) && kept.ends_with(is_word) {
                kept.push(' ');
            }
            kept.push(mark);
        }
        (rest, dropped) = (after, mark.is_none());
    }
    let text = without_list_mark(kept.trim());
    // A line may be megabytes.
    if text.len() == kept.len() { kept } else { text.to_owned() }
}

/// A line without the marks of a heading or of a list's item.
fn without_list_mark(line: &str) -> &str {
    let heading = line.trim_start_matches('#');
    let line = if heading.starts_with(' ') { heading.trim_start() } else { line };
    if let Some(item) = line.strip_prefix(['-', '+', '•'])
        && item.starts_with(' ')
        && !item.trim_start().starts_with(|letter: char| letter.is_ascii_digit())
    {
        return item.trim_start();
    }
    let item = line.trim_start_matches(|letter: char| letter.is_ascii_digit());
    match item.strip_prefix(['.', ')']) {
        Some(text) if item.len() < line.len() && text.starts_with(' ') => {
            let text = text.trim_start();
            if text.starts_with(|letter: char| letter.is_ascii_digit()) { line } else { text }
        }
        _ => line,
    }
}

/// Adds the sentences of a line.
fn split(line: &str, found: &mut Vec<Sentence>) {
    let first = found.len();
    let mut start = 0;
    let mut at = 0;
    while let Some(letter) = line[at..].chars().next() {
        if found.len() > MOST_SENTENCES {
            return;
        }
        let length = line[at..].chars().take_while(|letter| is_end(*letter)).map(char::len_utf8).sum::<usize>();
        let end = at + length;
        let closing = |letter: char| matches!(letter, '"' | ')' | '”' | '’' | '⟧') || letter.is_whitespace();
        let ends = length > 0
            && (letter == '。' || line[end..].chars().next().is_none_or(closing))
            && !(letter == '.' && is_abbreviation(&line[start..at], &line[end..]));
        if ends {
            push(&line[start..at], &line[at..end], first, found);
            start = end;
        }
        at = if length > 0 { end } else { at + letter.len_utf8() };
    }
    push(&line[start..], "", first, found);
    if let Some(last) = found[first..].last_mut() {
        last.ends_line = true;
    }
}

fn push(text: &str, end: &str, first: usize, found: &mut Vec<Sentence>) {
    let tokens = tokens(text);
    let (question, ended) = (end.contains('?'), !end.is_empty() && !end.contains("..") && !end.contains('…'));
    if tokens.iter().any(|token| !matches!(token, Token::Mark(mark) if !PLACES.contains(mark))) {
        let text = text.trim();
        let (text, starts_line) = (text[..text.floor_char_boundary(SHOWN)].to_owned(), found.len() == first);
        found.push(Sentence { text, tokens, ended, question, starts_line, ends_line: false });
    } else if let Some(last) = found[first..].last_mut() {
        last.ended |= ended;
        last.question |= question;
    }
}

const fn is_end(letter: char) -> bool {
    matches!(letter, '.' | '!' | '?' | '。' | '…')
}

fn is_abbreviation(before: &str, after: &str) -> bool {
    let word = before.rsplit(|letter: char| !(letter.is_alphabetic() || letter == '.')).next().unwrap_or_default();
    after.trim_start().starts_with(|letter: char| letter.is_ascii_digit())
        && ABBREVIATIONS.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// The tokens of a sentence. One that is too long for a verdict has its first tokens, and the
/// numbers and places of the rest.
fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut keep = |token: Token| {
        let counts = token.has_digits() || matches!(&token, Token::Mark(mark) if PLACES.contains(mark));
        if found.len() < MOST_TOKENS || (counts && found.len() < 2 * MOST_TOKENS) {
            found.push(token);
        }
    };
    let (mut before, mut rest) = (' ', text);
    while let Some(letter) = rest.chars().next() {
        let mut length = letter.len_utf8();
        let mut behind = rest[length..].chars();
        let next = behind.next().unwrap_or(' ');
        let apart = before.is_whitespace();
        let sign = matches!(letter, '-' | '−') && apart;
        let fraction = next == '.' && behind.next().is_some_and(|digit| digit.is_ascii_digit());
        let starts = is_word(letter)
            || (letter == '.' && next.is_ascii_digit())
            || (sign && (next.is_ascii_digit() || fraction));
        if starts {
            length = chunk_length(rest);
            keep(chunk(&rest[..length]));
        } else if letter.is_alphanumeric() {
            let ends = |letter: char| !letter.is_alphanumeric() || is_word(letter);
            length = rest.find(ends).unwrap_or(rest.len());
            keep(chunk(&rest[..length]));
        } else {
            let spaced = apart && next.is_whitespace();
            match letter {
                _ if letter.is_whitespace() => {}
                '-' if next == '>' => {
                    keep(Token::Mark('→'));
                    length += 1;
                }
                '–' if spaced => keep(Token::Mark('—')),
                '-' if spaced => keep(Token::Mark(SPACED_HYPHEN)),
                _ => keep(Token::Mark(letter)),
            }
        }
        before = rest[..length].chars().next_back().unwrap_or(' ');
        rest = &rest[length..];
    }
    found
}

/// Bytes of the word or number at the beginning of a text.
fn chunk_length(text: &str) -> usize {
    let mut letters = text.char_indices();
    let mut before = letters.next().map_or(' ', |(_, letter)| letter);
    while let Some((at, letter)) = letters.next() {
        let after = || letters.clone().next().map_or(' ', |(_, letter)| letter);
        if !is_word(letter) && !joins(before, letter, after()) {
            return at;
        }
        before = letter;
    }
    text.len()
}

/// A mark within a word or a number.
fn joins(before: char, mark: char, after: char) -> bool {
    match mark {
        ',' | ':' => before.is_ascii_digit() && after.is_ascii_digit(),
        '.' | '-' | '–' | '\'' | '’' | '_' => is_word(after) || (mark == '-' && after == '.'),
        '—' => before.is_ascii_digit() && after.is_ascii_digit(),
        _ => false,
    }
}

fn chunk(text: &str) -> Token {
    if !text.contains(char::is_numeric) {
        let text = if text.contains('’') { text.replace('’', "'") } else { text.to_owned() };
        return Token::Word(text.to_lowercase(), text);
    }
    let plain = text.strip_prefix(['-', '−']).unwrap_or(text);
    let whole = plain.split('.').next().unwrap_or_default();
    let thousands = !matches!(whole, "" | "0") && plain.len() == whole.len() + 4;
    let is_plain = plain.chars().all(|letter| letter.is_ascii_digit() || letter == '.')
        && (whole.len() < 2 || !whole.starts_with('0'))
        && !thousands;
    match plain.parse::<f64>() {
        Ok(value) if is_plain => Token::Number(if plain.len() < text.len() { -value } else { value }),
        _ => Token::Odd(text.to_owned()),
    }
}

/// Returns whether a letter is part of the word beside it. Chinese, Japanese, Korean, Thai and
/// others are written without spaces, so that a number beside their letters is a separate token:
/// "8分".
pub fn is_word(letter: char) -> bool {
    let unspaced = matches!(letter,
        '\u{E00}'..='\u{EFF}' | '\u{1000}'..='\u{109F}' | '\u{1780}'..='\u{17FF}' | '\u{2E80}'..='\u{9FFF}'
        | '\u{AC00}'..='\u{D7AF}' | '\u{F900}'..='\u{FAFF}' | '\u{FF66}'..='\u{FF9F}' | '\u{20000}'..='\u{3FFFF}');
    letter.is_alphanumeric() && !unspaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_takes_memory_by_what_can_be_a_score() {
        let long = format!("{}. Score: 7", "word ".repeat(1 << 20));
        let found = sentences(&long, false).unwrap();
        assert_eq!(found.iter().map(|sentence| sentence.tokens.len()).collect::<Vec<_>>(), [MOST_TOKENS, 3]);
        assert_eq!(sentences(&"a\n".repeat(MOST_SENTENCES), false).unwrap().len(), MOST_SENTENCES);
        for many in ["a. ", "a\n"] {
            let unread = sentences(&many.repeat(MOST_SENTENCES + 1), false).unwrap_err();
            assert!(matches!(unread, Unread::Unclear(why) if why == "more than 65536 sentences"));
        }
    }
}
