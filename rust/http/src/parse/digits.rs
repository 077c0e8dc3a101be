//! Brings the digits of other scripts to ASCII: "８／１０" is "8/10".

use std::borrow::Cow;

/// Code points of the zeros of scripts whose ten digits follow one another.
const ZEROS: [u32; 18] = [
    0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xE50, 0xED0, 0xF20, 0x1040,
    0x17E0, 0x1810,
];

/// The text with ASCII digits, and full-width signs as ASCII.
pub fn with_ascii_digits(text: &str) -> Cow<'_, str> {
    if !text.is_ascii() && text.chars().any(|letter| ascii(letter) != letter) {
        Cow::Owned(text.chars().map(ascii).collect())
    } else {
        Cow::Borrowed(text)
    }
}

fn ascii(letter: char) -> char {
    let code = u32::from(letter);
    if code < 0x660 {
        return letter;
    }
    if (0xFF01..=0xFF5E).contains(&code) {
        return char::from_u32(code - 0xFEE0).unwrap_or(letter);
    }
    let digit = ZEROS.iter().find_map(|zero| code.checked_sub(*zero).filter(|digit| *digit < 10));
    digit.and_then(|digit| char::from_digit(digit, 10)).unwrap_or(letter)
}
