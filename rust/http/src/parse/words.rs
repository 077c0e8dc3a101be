//! What belongs to one word: a number beside a letter is part of a name.

/// Whether letters of this kind stand side by side without spaces between words, so that a number
/// beside one stands by itself: "我给8分".
const fn is_unspaced(letter: char) -> bool {
    matches!(letter,
        '\u{E00}'..='\u{EFF}' | '\u{1000}'..='\u{109F}' | '\u{1780}'..='\u{17FF}' | '\u{2E80}'..='\u{9FFF}'
        | '\u{AC00}'..='\u{D7AF}' | '\u{F900}'..='\u{FAFF}' | '\u{FF66}'..='\u{FF9F}' | '\u{20000}'..='\u{3FFFF}')
}

/// Whether a letter is part of the word beside it.
pub fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() && !is_unspaced(letter)
}

/// Spaces within a line.
pub const fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\u{A0}' | '\u{3000}')
}

/// Marks around what they emphasise, quote or enclose.
pub const fn is_mark(letter: char) -> bool {
    matches!(
        letter,
        '*' | '_'
            | '`'
            | '"'
            | '\''
            | '$'
            | '('
            | ')'
            | '['
            | ']'
            | '{'
            | '}'
            | '“'
            | '”'
            | '‘'
            | '’'
            | '«'
            | '»'
            | '（'
            | '）'
            | '【'
            | '】'
            | '「'
            | '」'
            | '『'
            | '』'
            | '\\'
    )
}

/// What can't be seen, or changes the letter before it.
pub const fn is_invisible(letter: char) -> bool {
    matches!(letter,
        '\u{AD}' | '\u{300}'..='\u{36F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{2064}'
        | '\u{20D0}'..='\u{20FF}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}')
}

/// The last word of a text, with what stands before it.
pub fn last_word(text: &str) -> (&str, &str) {
    let start = text.char_indices().rev().take_while(|(_, letter)| is_word(*letter) || *letter == '\'').last();
    text.split_at(start.map_or(text.len(), |(at, _)| at))
}

/// Words that turn a sentence around.
const NEGATIONS: [&str; 13] = [
    "not", "no", "never", "neither", "nor", "nothing", "none", "cannot", "hardly", "barely", "without", "nobody",
    "unlikely",
];
/// Words of what might be, or might have been. "would" is none in "I would give it".
const CONDITIONS: [&str; 7] = ["if", "unless", "until", "would", "could", "might", "should"];
/// Words after which a sentence says what follows from what it said before.
const CONCLUSIONS: [&str; 6] = ["so", "therefore", "thus", "hence", "consequently", "overall"];
/// How far back a sentence is looked at, in bytes.
const SENTENCE: usize = 120;

/// Whether the sentence that ends here turns around what comes next.
pub fn is_negated(before: &str) -> bool {
    let sentence = end_behind(before, &['.', '!', '?', ':', ';', '\n']);
    words_of(sentence)
        .fold(false, |negated, word| (negated || is_negation(&word)) && !CONCLUSIONS.contains(&word.as_str()))
}

/// Whether the clause that ends here says that what comes next does not hold, or not yet: "this is
/// not a", "an ideal answer would get".
pub fn is_denied(before: &str) -> bool {
    let clause = end_behind(before, &['.', '!', '?', ':', ';', '\n', ',', '—', '–', '(', '，', '。']);
    let mut speaker = false;
    words_of(clause).fold(false, |denied, word| {
        let conditional = CONDITIONS.contains(&word.as_str()) && !(speaker && word == "would");
        speaker = matches!(word.as_str(), "i" | "we");
        (denied || conditional || is_negation(&word)) && !CONCLUSIONS.contains(&word.as_str())
    })
}

/// What stands behind the last of these letters, within the length of a sentence.
fn end_behind<'a>(text: &'a str, letters: &[char]) -> &'a str {
    let mut start = text.len().saturating_sub(SENTENCE);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].rsplit(letters).next().unwrap_or_default()
}

fn words_of(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|letter: char| !(letter.is_alphanumeric() || matches!(letter, '\'' | '’')));
    words.map(|word| word.to_lowercase().replace('’', "'"))
}

fn is_negation(word: &str) -> bool {
    NEGATIONS.contains(&word) || word.ends_with("n't")
}
