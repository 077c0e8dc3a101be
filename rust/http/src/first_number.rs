//! Finds the first number in an answer.

/// The first number that stands by itself: not the 4 of "GPT4", not the minus of "7-8"; nothing of
/// "1,000" or "3,5", which may be thousands, a fraction or two numbers.
pub fn first_number(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut at = 0;
    while at < bytes.len() {
        let starts = digit(at) || (bytes[at] == b'.' && digit(at + 1));
        if !starts {
            at += 1;
            continue;
        }
        let start = at;
        at = number_end(bytes, at);
        let before = text[..start].chars().next_back();
        let signed = matches!(before, Some('-' | '+' | '\u{2212}'));
        let ahead = if signed { text[..start].chars().rev().nth(1) } else { before };
        let glued = ahead.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
        if glued && !signed {
            continue;
        }
        if bytes.get(at) == Some(&b',') && digit(at + 1) {
            while digit(at) || (matches!(bytes.get(at), Some(b',' | b'.')) && digit(at + 1)) {
                at += 1;
            }
            continue;
        }
        let size: f64 = text[start..at].trim_end_matches('.').parse().ok()?;
        let negative = signed && !glued && matches!(before, Some('-' | '\u{2212}'));
        return Some(if negative { -size } else { size });
    }
    None
}

/// Where the number ends that starts here.
fn number_end(bytes: &[u8], start: usize) -> usize {
    let run = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let mut end = run(start);
    if bytes.get(end) == Some(&b'.') {
        end = run(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'-' | b'+')));
        let after = run(end + 1 + sign);
        if after > end + 1 + sign {
            end = after;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_that_stands_by_itself() {
        let cases = [
            ("Score: 7", Some(7.0)),
            ("8/10", Some(8.0)),
            ("7-8", Some(7.0)),
            ("It is -3.5, not 4", Some(-3.5)),
            ("\u{2212}2", Some(-2.0)),
            ("GPT4 says 9.", Some(9.0)),
            ("v2_3 is .5", Some(0.5)),
            ("1e-3", Some(0.001)),
            ("**6**", Some(6.0)),
            ("3e", Some(3.0)),
            ("7, 5", Some(7.0)),
            ("3,5", None),
            ("1,000.5 of 9", Some(9.0)),
            ("no opinion", None),
        ];
        for (text, expected) in cases {
            assert_eq!(first_number(text), expected, "{text}");
        }
    }
}
