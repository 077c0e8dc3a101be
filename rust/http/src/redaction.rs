//! What comes from a server or from the transport, without the key, whole or in pieces.
//!
//! - N-1  The key is taken out wherever it stands, as it is or as it stands in quotation marks; so is each piece of `PIECE` bytes or more that it
//!   has in common with a text: servers say back its beginning, or all but some letters of it.
//! - N-2  Beside letters that hide or cut something (`…`, `...`, two or more of `*` or `•`, with quotation marks or without) a piece of `LEAST`
//!   bytes is enough: the beginning of the key before them, its end behind them, as in `sk-ab****yz12`.
//! - N-3  It takes time in proportion to the text, whatever stands in it.

use std::collections::HashSet;

/// Bytes that a text and a key don't have in common by chance (N-1).
const PIECE: usize = 8;
/// The same where something is hidden (N-2).
const LEAST: usize = 3;
/// The longest beginning or end of a key that is looked for beside what hides it: longer ones are found by their pieces.
const BESIDE: usize = PIECE;

/// A key, as it is to be found.
#[derive(Clone, Default)]
pub struct Redaction {
    /// As it is, and as it stands in quotation marks; empty without a key.
    forms: Vec<String>,
    /// All pieces of `PIECE` bytes of these.
    pieces: HashSet<[u8; PIECE]>,
}

impl std::fmt::Debug for Redaction {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Redaction(…)")
    }
}

impl Redaction {
    /// Of no key, if it is empty.
    pub fn of(key: &str) -> Self {
        let mut forms: Vec<String> = vec![key.to_owned(), key.escape_debug().to_string()];
        forms.dedup();
        forms.retain(|form| !form.is_empty());
        let pieces = forms.iter().flat_map(|form| form.as_bytes().array_windows().copied()).collect();
        Self { forms, pieces }
    }

    /// A text with `…` for what it holds of the key.
    pub fn clean(&self, text: &str) -> String {
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
                let beside = || (LEAST..=BESIDE.min(form.len())).rev();
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

/// Where something is hidden or cut (N-2), with the quotation marks around it.
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
    fn n1_the_key_and_long_pieces_of_it() {
        let clean = |text: &str| Redaction::of(KEY).clean(text);
        assert_eq!(clean(&format!("your key {KEY} is bad")), "your key … is bad");
        assert_eq!(clean("Bearer sk-proj-Abcd is bad"), "Bearer … is bad");
        assert_eq!(clean("it ends with 456789wxyz."), "it ends with ….");
        assert_eq!(clean("Abcdef01 Abcdef01"), "… …");
        assert_eq!(clean("Abcdef0 and sk-proj"), "Abcdef0 and sk-proj", "seven letters may be chance");
        assert_eq!(Redaction::of("").clean("…sk-…"), "…sk-…");
        assert_eq!(Redaction::of("EMPTY").clean("no EMPTY, but EMPT"), "no …, but EMPT");
        let odd = Redaction::of("a\\b\"c-and-so-on");
        assert_eq!(odd.clean("key a\\b\"c-and-so-on"), "key …");
        assert_eq!(odd.clean(&format!("{:?}", "key a\\b\"c-and-so-on")), "\"key …\"");
        assert_eq!(Redaction::of("grüße-süß").clean("hier: grüße-süß!"), "hier: …!", "whole letters");
    }

    #[test]
    fn n2_what_a_mask_leaves_of_it() {
        let clean = |text: &str| Redaction::of(KEY).clean(text);
        assert_eq!(clean("Incorrect API key provided: sk-proj****wxyz."), "Incorrect API key provided: …****….");
        assert_eq!(clean("key sk-p...xyz, key sk-…yz"), "key …...…, key ……yz");
        assert_eq!(clean("gave \"your key sk-p\"…"), "gave \"your key …\"…");
        assert_eq!(clean("sk-pr••••789wxyz"), "…••••…");
        assert_eq!(clean("**sk** is **well**, s**o** 3 * 4"), "**sk** is **well**, s**o** 3 * 4");
    }

    #[test]
    fn n3_long_texts_take_no_square_of_time() {
        let key = "a".repeat(4000) + "b";
        let texts = ["a".repeat(1 << 17), "*a".repeat(1 << 16), "\\".repeat(1 << 17) + "…", "…".repeat(1 << 15)];
        let begun = Instant::now();
        let redaction = Redaction::of(&key);
        for text in &texts {
            assert!(redaction.clean(text).len() <= text.len());
        }
        assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    }
}
