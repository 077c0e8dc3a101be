//! Text with the meaning of Python's `str` and `re`, where Rust's differs.
//!
//! - White space has U+001C to U+001F, which Unicode's `White_Space` lacks.
//! - A word character (`\w`) is a letter, a number or `_`; a mark is not.
//! - Cases and classes come from Rust's Unicode tables: letters that were added after the version
//!   of Python's tables count as letters here already.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};

/// `str.isspace` of one character, and `\s`.
pub fn is_space(character: char) -> bool {
    matches!(character, '\u{1c}'..='\u{1f}') || character.is_whitespace()
}

/// `str.split()`.
pub fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_space).filter(|word| !word.is_empty())
}

/// `str.strip()`.
pub fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// `str.rstrip()`.
pub fn strip_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

/// `str.lower()`.
pub fn lower(text: &str) -> String {
    text.to_lowercase()
}

/// `string.punctuation`.
pub const fn is_punctuation(character: char) -> bool {
    character.is_ascii_punctuation()
}

/// `\w`.
pub fn is_word(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_alphanumeric() || character == '_';
    }
    // Most alphabetic characters are letters; the rest (marks, circled letters) are searched in a
    // table.
    character.is_alphanumeric() && in_ranges(&WORDS, character)
}

/// `str.isupper()`.
pub fn is_upper(text: &str) -> bool {
    let against = text.chars().any(|one| one.is_lowercase() || is_title(one));
    !against && text.chars().any(char::is_uppercase)
}

/// `str.islower()`.
pub fn is_lower(text: &str) -> bool {
    let against = text.chars().any(|one| one.is_uppercase() || is_title(one));
    !against && text.chars().any(char::is_lowercase)
}

/// Returns whether `re.IGNORECASE` matches a character with this lower-case ASCII letter.
pub const fn is_letter_ignoring_case(character: char, letter: char) -> bool {
    let other = match letter {
        'i' => matches!(character, '\u{130}' | '\u{131}'),
        'k' => character == '\u{212a}',
        's' => character == '\u{17f}',
        _ => false,
    };
    character.eq_ignore_ascii_case(&letter) || other
}

/// Returns the text of the last `<tag>…</tag>`, stripped, as `re.finditer` finds it with `.*?` over
/// several lines.
pub fn last_tagged<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let (mut rest, mut last) = (text, None);
    while let Some(start) = rest.find(&open) {
        let inside = &rest[start + open.len()..];
        let Some(end) = inside.find(&close) else { break };
        last = Some(strip(&inside[..end]));
        rest = &inside[end + close.len()..];
    }
    last
}

type Ranges = Vec<(char, char)>;

static WORDS: LazyLock<Ranges> = LazyLock::new(|| ranges(r"[\p{L}\p{N}_]"));

/// Returns the characters of one of the fixed classes above, in order.
fn ranges(class: &str) -> Ranges {
    let parsed = regex_syntax::parse(class).ok();
    match parsed.as_ref().map(regex_syntax::hir::Hir::kind) {
        Some(HirKind::Class(Class::Unicode(class))) => class.iter().map(|one| (one.start(), one.end())).collect(),
        _ => Vec::new(),
    }
}

fn in_ranges(ranges: &Ranges, character: char) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= character);
    after.checked_sub(1).is_some_and(|at| character <= ranges[at].1)
}

/// Returns whether a character is of category Lt.
const fn is_title(character: char) -> bool {
    matches!(character,
        '\u{1c5}' | '\u{1c8}' | '\u{1cb}' | '\u{1f2}' | '\u{1f88}'..='\u{1f8f}' | '\u{1f98}'..='\u{1f9f}'
        | '\u{1fa8}'..='\u{1faf}' | '\u{1fbc}' | '\u{1fcc}' | '\u{1ffc}')
}

#[cfg(test)]
mod tests {
    //! Results of CPython 3.11, recorded.

    use super::*;

    #[test]
    fn white_space_is_pythons() {
        let found: Vec<u32> = (0..=0x0010_ffff).filter(|one| char::from_u32(*one).is_some_and(is_space)).collect();
        let mut expected: Vec<u32> = (0x9..=0xd).chain(0x1c..=0x20).chain([0x85, 0xa0, 0x1680]).collect();
        expected.extend((0x2000..=0x200a).chain([0x2028, 0x2029, 0x202f, 0x205f, 0x3000]));
        assert_eq!(found, expected);
        assert_eq!(split("\u{1c}a\u{1f}\tb \u{3000}").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(strip("\u{1d} a\u{200b} \n"), "a\u{200b}");
    }

    #[test]
    fn lower_case_is_that_of_whole_texts() {
        assert_eq!(lower("ΑΣ ΑΣΑ Σ İ K ẞ"), "ας ασα σ i\u{307} k ß");
    }

    #[test]
    fn words_have_no_marks() {
        let words = "aZ_0éß٣字Ⅷ²½ªǅ";
        assert!(words.chars().all(is_word));
        let others = " -’\u{300}\u{903}ⓐ🄰€\u{200d}";
        assert!(!others.chars().any(is_word));
    }

    #[test]
    fn cases_of_whole_texts() {
        assert!(is_upper("A1 Ⓐ") && !is_upper("A ǅ") && !is_upper("1") && !is_upper("Aa"));
        assert!(is_lower("a1 ª") && !is_lower("a ǅ") && !is_lower("") && !is_lower("Aa"));
    }

    #[test]
    fn some_letters_have_more_cases() {
        for (letter, others) in [('i', "iIİı"), ('s', "sSſ"), ('k', "kKK"), ('a', "aA")] {
            assert!(others.chars().all(|other| is_letter_ignoring_case(other, letter)));
        }
        assert!(!is_letter_ignoring_case('ı', 'k'));
    }

    #[test]
    fn the_last_tag_that_ends_counts() {
        assert_eq!(last_tagged("<a> 1</a><a>2\n</a>", "a"), Some("2"));
        assert_eq!(last_tagged("<a>1<a>2</a>3</a>", "a"), Some("1<a>2"));
        assert_eq!(last_tagged("<a>1</a><a>2", "a"), Some("1"));
        assert_eq!(last_tagged("</a><a>", "a"), None);
    }
}
