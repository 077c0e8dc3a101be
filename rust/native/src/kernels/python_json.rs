//! Checks that `json.loads` of CPython accepts a text: JSON, and also NaN, Infinity and -Infinity.

/// Nesting beyond which CPython may raise a `RecursionError`, depending on its limit and its stack.
const DEEPEST: usize = 400;
/// Most digits of a whole number that CPython converts to an `int` (`sys.int_info`).
const MOST_DIGITS: usize = 4300;

/// Returns whether `json.loads` accepts a text; `None` if it is nested so deep that the stack
/// decides.
pub fn loads(text: &str) -> Option<bool> {
    let mut reader = Reader { rest: text.as_bytes() };
    reader.space();
    let is_value = reader.value(0)?;
    reader.space();
    Some(is_value && reader.rest.is_empty())
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn space(&mut self) {
        let is_space = |one: &&u8| matches!(one, b' ' | b'\t' | b'\n' | b'\r');
        self.rest = &self.rest[self.rest.iter().take_while(is_space).count()..];
    }

    fn take(&mut self, word: &[u8]) -> bool {
        let rest = self.rest.strip_prefix(word);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn value(&mut self, depth: usize) -> Option<bool> {
        if depth == DEEPEST {
            return None;
        }
        match self.rest.first() {
            Some(b'{') => self.members(depth, b"}", true),
            Some(b'[') => self.members(depth, b"]", false),
            Some(b'"') => Some(self.string()),
            _ => {
                let words: [&[u8]; 6] = [b"null", b"true", b"false", b"NaN", b"Infinity", b"-Infinity"];
                Some(words.iter().any(|word| self.take(word)) || self.number())
            }
        }
    }

    /// Reads an object or an array, from its bracket on.
    fn members(&mut self, depth: usize, end: &[u8], named: bool) -> Option<bool> {
        self.rest = &self.rest[1..];
        self.space();
        if self.take(end) {
            return Some(true);
        }
        loop {
            if named {
                if !self.string() {
                    return Some(false);
                }
                self.space();
                if !self.take(b":") {
                    return Some(false);
                }
                self.space();
            }
            if !self.value(depth + 1)? {
                return Some(false);
            }
            self.space();
            if self.take(end) {
                return Some(true);
            }
            if !self.take(b",") {
                return Some(false);
            }
            self.space();
        }
    }

    fn string(&mut self) -> bool {
        if !self.take(b"\"") {
            return false;
        }
        while let [first, rest @ ..] = self.rest {
            self.rest = rest;
            match first {
                b'"' => return true,
                0..0x20 => return false,
                b'\\' => match rest {
                    [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', rest @ ..] => self.rest = rest,
                    [b'u', a, b, c, d, rest @ ..] if [a, b, c, d].iter().all(|one| one.is_ascii_hexdigit()) => {
                        self.rest = rest;
                    }
                    _ => return false,
                },
                _ => {}
            }
        }
        false
    }

    fn digits(&mut self) -> usize {
        let count = self.rest.iter().take_while(|one| one.is_ascii_digit()).count();
        self.rest = &self.rest[count..];
        count
    }

    fn number(&mut self) -> bool {
        self.take(b"-");
        let whole = if self.take(b"0") { 1 } else { self.digits() };
        if whole == 0 {
            return false;
        }
        let is_broken = self.part(&[b"."], &[]);
        let has_exponent = self.part(&[b"e", b"E"], &[b"+", b"-"]);
        is_broken || has_exponent || whole <= MOST_DIGITS
    }

    /// Reads a mark, perhaps a sign, and digits. The mark does not belong to the number if digits
    /// are missing; the text is then invalid.
    fn part(&mut self, marks: &[&[u8]], signs: &[&[u8]]) -> bool {
        let before = self.rest;
        if marks.iter().any(|mark| self.take(mark)) {
            let _signed = signs.iter().any(|sign| self.take(sign));
            if self.digits() > 0 {
                return true;
            }
        }
        self.rest = before;
        false
    }
}

#[cfg(test)]
mod tests {
    //! Texts that CPython 3.11 accepts, recorded.

    use super::*;

    #[test]
    fn it_takes_what_python_takes() {
        let taken = [
            "{}",
            " [1, -0, 0.5e-3, 1E5, 2e+1]\r\n",
            "NaN",
            "-Infinity",
            "\"\\ud800\"",
            "{\"a\": {\"b\": [null]}}",
            "\"\u{7f}é\"",
        ];
        for text in taken {
            assert_eq!(loads(text), Some(true), "{text}");
        }
        let refused = [
            "",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "01",
            "1.",
            ".5",
            "+1",
            "--1",
            "1e",
            "'a'",
            "\"\n\"",
            "\"\\x\"",
            "\"\\u12\"",
            "{} {}",
            "\u{feff}1",
            "nul",
            "\u{a0}1",
            "-NaN",
            "[1 2]",
            "1e5E5",
        ];
        for text in refused {
            assert_eq!(loads(text), Some(false), "{text}");
        }
        assert_eq!(loads(&"9".repeat(4300)), Some(true));
        assert_eq!(loads(&"9".repeat(4301)), Some(false));
        assert_eq!(loads(&"[".repeat(500)), None);
    }
}
