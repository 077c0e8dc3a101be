//! IFEval's instructions on paragraphs, words and the ends of a text.

use crate::kernels::ifeval::arguments::Arguments;
use crate::kernels::python_text::{is_word, lower, split, strip};

/// Returns the number of runs of word characters.
pub fn words(text: &str) -> usize {
    let mut inside = false;
    let starts = text.chars().filter(|one| {
        let was = std::mem::replace(&mut inside, is_word(*one));
        inside && !was
    });
    starts.count()
}

/// Checks the number of paragraphs between `***`, with at most one white space on each side of it.
/// An empty paragraph is wrong, except at the ends.
pub fn has_paragraphs(text: &str, wanted: f64) -> bool {
    // White space next to a divider belongs to no paragraph, but an empty paragraph stays empty.
    let paragraphs: Vec<&str> = text.split("***").collect();
    let last = paragraphs.len() - 1;
    let mut count = paragraphs.len();
    for (index, paragraph) in paragraphs.iter().enumerate() {
        if strip(paragraph).is_empty() {
            if index != 0 && index != last {
                return false;
            }
            count -= 1;
        }
    }
    count as f64 == wanted
}

/// Checks the first word of one of the paragraphs between empty lines.
pub fn nth_first_word(text: &str, arguments: &Arguments<'_>) -> Option<bool> {
    let wanted = arguments.number("num_paragraphs").filter(|number| *number >= 0.0)?;
    let nth = arguments.number("nth_paragraph").filter(|nth| *nth > 0.0 && *nth <= wanted && nth.fract() == 0.0)?;
    let first = lower(arguments.text("first_word")?);
    let paragraphs: Vec<&str> = text.split("\n\n").collect();
    let count = paragraphs.iter().filter(|paragraph| !strip(paragraph).is_empty()).count() as f64;
    if nth > count {
        return Some(false);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number in 1..=count")]
    let paragraph = paragraphs[nth as usize - 1];
    let Some(word) = split(paragraph).next() else { return Some(false) };
    let word = word.trim_start_matches('\'').trim_start_matches('"');
    let letters = word.chars().take_while(|one| !matches!(one, '.' | ',' | '?' | '!' | '\'' | '"'));
    let word: String = letters.flat_map(char::to_lowercase).collect();
    Some(count == wanted && word == first)
}

/// Checks for two different answers with six asterisks between them.
pub fn has_two_responses(text: &str) -> bool {
    let responses: Vec<&str> = text.split("******").collect();
    let last = responses.len() - 1;
    let mut given = Vec::new();
    for (index, response) in responses.into_iter().enumerate() {
        match strip(response) {
            "" if index != 0 && index != last => return false,
            "" => {}
            response => given.push(response),
        }
    }
    matches!(given[..], [one, other] if one != other)
}

/// Checks that the text begins with the request, ignoring case.
pub fn repeats_prompt(text: &str, prompt: &str) -> bool {
    lower(strip(text)).starts_with(&lower(strip(prompt)))
}

/// Checks that the text ends with a phrase, ignoring case and quotation marks.
pub fn ends_with(text: &str, phrase: &str) -> bool {
    lower(strip(text).trim_matches('"')).ends_with(&lower(strip(phrase)))
}

/// Returns whether the text is between double quotation marks.
pub fn is_quoted(text: &str) -> bool {
    let text = strip(text);
    text.chars().count() > 1 && text.starts_with('"') && text.ends_with('"')
}
