//! Looks ahead in a text and remembers whether it met the end: what was read without meeting it,
//! no continuation changes.

/// A place in a text.
#[derive(Clone, Debug)]
pub struct Ahead<'a> {
    text: &'a str,
    pub at: usize,
    pub met_end: bool,
}

impl<'a> Ahead<'a> {
    pub const fn new(text: &'a str, at: usize) -> Self {
        Self { text, at, met_end: false }
    }

    pub fn peek(&mut self) -> Option<char> {
        let next = self.text[self.at..].chars().next();
        self.met_end |= next.is_none();
        next
    }

    pub fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// Passes what `skips` accepts; where that began.
    pub fn skip(&mut self, skips: impl Fn(char) -> bool) -> usize {
        let start = self.at;
        while self.peek().is_some_and(&skips) {
            self.next();
        }
        start
    }

    /// Passes a word if it stands here, in any case.
    pub fn eat(&mut self, word: &str) -> bool {
        let start = self.at;
        for wanted in word.chars() {
            if self.next().is_none_or(|letter| !letter.eq_ignore_ascii_case(&wanted)) {
                self.at = start;
                return false;
            }
        }
        true
    }

    /// Passes a number of plain digits, with a fraction.
    pub fn number(&mut self) -> Option<f64> {
        let start = self.skip(|letter| letter.is_ascii_digit());
        if self.at == start {
            return None;
        }
        let whole = self.at;
        if self.eat(".") && self.skip(|letter| letter.is_ascii_digit()) == self.at {
            self.at = whole;
        }
        self.text[start..self.at].parse().ok()
    }
}
