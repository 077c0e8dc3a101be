//! Redaction of the API key in what a server or the transport says, whole or in pieces.
//!
//! - The key goes as it is, escaped, and in base64, also where that has other text around it; so
//!   does each piece of `PIECE` bytes or more of it.
//! - Beside a mask (`…`, `...`, two or more of `*` or `•`) a piece of `MASKED_PIECE` bytes is
//!   enough: servers show `sk-ab****yz12`.
//! - It takes time in proportion to the text, whatever the text holds.

use std::collections::HashSet;

/// Bytes that a text and a key don't have in common by chance.
const PIECE: usize = 8;
/// The same beside a mask.
const MASKED_PIECE: usize = 3;
/// The longest beginning or end of a key that is looked for beside a mask: longer ones are found by
/// their pieces.
const BESIDE: usize = PIECE;

/// A key, as it is to be found.
#[derive(Clone, Default)]
pub struct Redactor {
    /// The key unchanged, escaped, and in base64; empty without a key.
    forms: Vec<String>,
    /// All pieces of `PIECE` bytes of these.
    pieces: HashSet<[u8; PIECE]>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Redactor(…)")
    }
}

impl Redactor {
    /// Redacts nothing if the key is empty.
    pub fn of(key: &str) -> Self {
        let mut forms: Vec<String> = vec![key.to_owned(), key.escape_debug().to_string()];
        forms.dedup();
        // Three bytes are four letters, so the bytes before the key shift it by up to two.
        forms.extend((0..3).filter(|_| !key.is_empty()).map(|shift| base64(key.as_bytes(), shift)));
        forms.retain(|form| !form.is_empty());
        let pieces = forms.iter().flat_map(|form| form.as_bytes().array_windows().copied()).collect();
        Self { forms, pieces }
    }

    /// Returns the text with `…` for the parts that contain the key.
    pub fn redact(&self, text: &str) -> String {
        if self.forms.is_empty() {
            return text.to_owned();
        }
        let mut hidden = vec![false; text.len()];
        for form in &self.forms {
            for (at, _) in text.match_indices(form.as_str()) {
                hidden[at..at + form.len()].fill(true);
            }
        }
        for (at, piece) in text.as_bytes().array_windows().enumerate() {
            if self.pieces.contains(piece) {
                hidden[at..at + PIECE].fill(true);
            }
        }
        for (from, to) in masks(text) {
            for form in self.forms.iter().map(String::as_bytes) {
                let (before, behind) = (&text.as_bytes()[..from], &text.as_bytes()[to..]);
                let beside = || (MASKED_PIECE..=BESIDE.min(form.len())).rev();
                if let Some(length) = beside().find(|length| before.ends_with(&form[..*length])) {
                    hidden[from - length..from].fill(true);
                }
                if let Some(length) = beside().find(|length| behind.starts_with(&form[form.len() - length..])) {
                    hidden[to..to + length].fill(true);
                }
            }
        }
        let mut clean = String::with_capacity(text.len());
        let mut within = false;
        for (at, letter) in text.char_indices() {
            let hides = hidden[at..at + letter.len_utf8()].contains(&true);
            if !hides {
                clean.push(letter);
            } else if !within {
                clean.push('…');
            }
            within = hides;
        }
        clean
    }
}

/// The letters of base64 that bytes alone decide which have `shift` others before them.
fn base64(bytes: &[u8], shift: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<bool> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1)).collect();
    let skipped = (6 - shift * 8 % 6) % 6;
    let sextets = bits.get(skipped..).unwrap_or_default().chunks_exact(6);
    let letter = |bits: &[bool]| LETTERS[bits.iter().fold(0, |value, bit| value << 1 | usize::from(*bit))];
    sextets.map(|bits| char::from(letter(bits))).collect()
}

/// The masks in a text, with the quotation marks around them.
fn masks(text: &str) -> Vec<(usize, usize)> {
    let is_mask = |letter: char| matches!(letter, '*' | '•' | '…' | '.');
    let mut found: Vec<(usize, usize)> = Vec::new();
    let mut letters = text.char_indices().peekable();
    while let Some((from, letter)) = letters.next() {
        if !is_mask(letter) {
            continue;
        }
        let (mut to, mut count) = (from + letter.len_utf8(), 1);
        while let Some((at, same)) = letters.next_if(|(_, next)| *next == letter) {
            (to, count) = (at + same.len_utf8(), count + 1);
        }
        let enough = match letter {
            '…' => 1,
            '.' => 3,
            _ => 2,
        };
        if count >= enough {
            let before = text[..from].trim_end_matches(['"', '\\']).len();
            found.push((before, to));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const KEY: &str = "sk-proj-Abcdef0123456789wxyz";

    #[test]
    fn the_key_and_long_pieces_of_it() {
        let clean = |text: &str| Redactor::of(KEY).redact(text);
        assert_eq!(clean(&format!("your key {KEY} is bad")), "your key … is bad");
        assert_eq!(clean("Bearer sk-proj-Abcd is bad"), "Bearer … is bad");
        assert_eq!(clean("it ends with 456789wxyz."), "it ends with ….");
        assert_eq!(clean("Abcdef01 Abcdef01"), "… …");
        assert_eq!(clean("Abcdef0 and sk-proj"), "Abcdef0 and sk-proj", "seven letters may be chance");
        assert_eq!(Redactor::of("").redact("…sk-…"), "…sk-…");
        assert_eq!(Redactor::of("EMPTY").redact("no EMPTY, but EMPT"), "no …, but EMPT");
        let odd = Redactor::of("a\\b\"c-and-so-on");
        assert_eq!(odd.redact("key a\\b\"c-and-so-on"), "key …");
        assert_eq!(odd.redact(&format!("{:?}", "key a\\b\"c-and-so-on")), "\"key …\"");
        assert_eq!(Redactor::of("grüße-süß").redact("hier: grüße-süß!"), "hier: …!", "whole letters");
    }

    #[test]
    fn the_key_in_base64_goes_wherever_it_begins() {
        let clean = |text: &str| Redactor::of(KEY).redact(text);
        assert_eq!(clean("c2stcHJvai1BYmNkZWYwMTIzNDU2Nzg5d3h5eg=="), "…g==", "the key");
        assert_eq!(clean("QmVhcmVyIHNrLXByb2otQWJjZGVmMDEyMzQ1Njc4OXd4eXo="), "QmVhcmVyIH…o=", "Bearer and the key");
        assert_eq!(clean("dTpzay1wcm9qLUFiY2RlZjAxMjM0NTY3ODl3eHl6"), "dTp…", "u: and the key");
    }

    #[test]
    fn mask_keeps_the_unmasked_part() {
        let clean = |text: &str| Redactor::of(KEY).redact(text);
        assert_eq!(clean("Incorrect API key provided: sk-proj****wxyz."), "Incorrect API key provided: …****….");
        assert_eq!(clean("key sk-p...xyz, key sk-…yz"), "key …...…, key ……yz");
        assert_eq!(clean("returned \"your key sk-p\"…"), "returned \"your key …\"…");
        assert_eq!(clean("sk-pr••••789wxyz"), "…••••…");
        assert_eq!(clean("**sk** is **well**, s**o** 3 * 4"), "**sk** is **well**, s**o** 3 * 4");
    }

    #[test]
    fn long_texts_take_no_square_of_time() {
        let key = "a".repeat(4000) + "b";
        let texts = ["a".repeat(1 << 17), "*a".repeat(1 << 16), "\\".repeat(1 << 17) + "…", "…".repeat(1 << 15)];
        let begun = Instant::now();
        let redaction = Redactor::of(&key);
        for text in &texts {
            assert!(redaction.redact(text).len() <= text.len());
        }
        assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    }
}
