//! BLEU of one text, with sacrebleu's tokenizer `13a` and its effective order.

use std::borrow::Cow;

use memchr::{memchr, memchr2};
use serde::Deserialize;

use crate::kernels::fault::{Fault, Score, Stop};
use crate::kernels::input::{Input, InputForm};
use crate::kernels::kernel::Kernel;
use crate::kernels::matching::{Part, best_of};
use crate::kernels::python_text::{lower, split, strip_end};
use crate::kernels::tokens::{ABSENT, COUNTED as ORDER, TokenNumbers, common_ngrams};

/// sacrebleu's substitute for the logarithm of 0.
const LOG_OF_0: f64 = -9_999_999_999.0;

/// Rule for n-gram lengths without a match.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Smooth {
    None,
    /// Count a tenth of a match.
    Floor,
    /// Add one match in each length except the first.
    AddK,
    /// Halve the substitute each time.
    Exp,
}

/// See the module.
pub struct Bleu {
    pub lowercase: bool,
    pub smooth: Smooth,
}

impl Bleu {
    /// Returns a text with its tokens separated by white space.
    fn tokenized(&self, text: &str) -> String {
        let text = if self.lowercase { Cow::Owned(lower(text)) } else { Cow::Borrowed(text) };
        let mut line = strip_end(&text).replace("<skipped>", "").replace("-\n", "").replace('\n', " ");
        if line.contains('&') {
            line = line.replace("&quot;", "\"").replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
        }
        let line = each_apart(&format!(" {line} "));
        let marks = |text: &[u8]| memchr2(b'.', b',', text);
        let is_digit = |one: char| one.is_ascii_digit();
        let line = second_apart(&line, marks, |one| !is_digit(one));
        let line = first_apart(&line, marks, |one| !is_digit(one));
        second_apart(&line, |text| memchr(b'-', text), is_digit)
    }

    fn score_of(&self, text: &str, references: &[Cow<'_, str>], stop: &dyn Stop) -> Result<f64, Fault> {
        stop.check()?;
        let text = self.tokenized(text);
        let mut numbering = TokenNumbers::new();
        let found = numbering.numbers(split(&text));
        let mut wanted = Vec::with_capacity(references.len());
        for reference in references {
            stop.check()?;
            let tokens = self.tokenized(reference);
            wanted.push(split(&tokens).map(|token| numbering.known(token).unwrap_or(ABSENT)).collect::<Vec<u32>>());
        }
        let closest = wanted.iter().map(Vec::len).min_by_key(|length| (length.abs_diff(found.len()), *length));
        let total = std::array::from_fn(|shorter| found.len().saturating_sub(shorter));
        let correct = common_ngrams(&found, &wanted, numbering.len(), stop)?;
        Ok(self.of_counts(correct, total, found.len(), closest.unwrap_or_default()))
    }

    fn of_counts(&self, correct: [usize; ORDER], total: [usize; ORDER], length: usize, wanted: usize) -> f64 {
        if correct.iter().all(|count| *count == 0) {
            return 0.0;
        }
        let brevity = if length < wanted { (1.0 - wanted as f64 / length as f64).exp() } else { 1.0 };
        let (mut halves, mut order, mut logs) = (1.0, ORDER, 0.0);
        for n in 0..ORDER {
            let more = usize::from(self.smooth == Smooth::AddK && n > 0);
            let (correct, total) = ((correct[n] + more) as f64, (total[n] + more) as f64);
            if total == 0.0 {
                break;
            }
            order = n + 1;
            let precision = if correct > 0.0 {
                100.0 * correct / total
            } else {
                match self.smooth {
                    Smooth::Exp => {
                        halves *= 2.0;
                        100.0 / (halves * total)
                    }
                    Smooth::Floor => 100.0 * 0.1 / total,
                    Smooth::None | Smooth::AddK => 0.0,
                }
            };
            logs += if precision == 0.0 { LOG_OF_0 } else { precision.ln() };
        }
        brevity * (logs / order as f64).exp()
    }
}

/// Puts white space around each ASCII mark except `'`, `,`, `-` and `.`.
fn each_apart(text: &str) -> String {
    let (mut apart, mut from) = (String::with_capacity(text.len() * 2), 0);
    for (at, one) in text.bytes().enumerate() {
        if matches!(one, b' '..=b'&' | b'('..=b'+' | b':'..=b'@' | b'/' | b'['..=b'`' | b'{'..=b'~') {
            apart.push_str(&text[from..at]);
            apart.extend([' ', char::from(one), ' ']);
            from = at + 1;
        }
    }
    apart + &text[from..]
}

/// Puts white space around each mark that `find` finds behind a character from which it must be
/// separated. A character is in at most one such pair.
fn second_apart(text: &str, find: impl Fn(&[u8]) -> Option<usize>, is_apart: impl Fn(char) -> bool) -> String {
    let (mut apart, mut from, mut at) = (String::with_capacity(text.len() * 2), 0, 0);
    while let Some(found) = find(&text.as_bytes()[at..]) {
        let mark = at + found;
        apart.push_str(&text[from..mark]);
        at = mark + 1;
        if text[from..mark].chars().next_back().is_some_and(&is_apart) {
            apart.extend([" ", &text[mark..at], " "]);
            from = at;
        } else {
            from = mark;
        }
    }
    apart + &text[from..]
}

/// Puts white space around each mark that `find` finds before a character from which it must be
/// separated.
fn first_apart(text: &str, find: impl Fn(&[u8]) -> Option<usize>, is_apart: impl Fn(char) -> bool) -> String {
    let (mut apart, mut from, mut at) = (String::with_capacity(text.len() * 2), 0, 0);
    while let Some(found) = find(&text.as_bytes()[at..]) {
        let mark = at + found;
        at = mark + 1;
        if let Some(next) = text[at..].chars().next().filter(|next| is_apart(*next)) {
            apart.extend([&text[from..mark], " ", &text[mark..at], " "]);
            apart.push(next);
            at += next.len_utf8();
            from = at;
        }
    }
    apart + &text[from..]
}

impl Kernel for Bleu {
    fn inputs(&self) -> Vec<InputForm> {
        vec![InputForm::Text, InputForm::References]
    }

    fn score(&self, inputs: &[Input<'_>], stop: &dyn Stop) -> Result<Score, Fault> {
        best_of(inputs, &Part::default(), |text, references| Ok(self.score_of(text, references, stop)? / 100.0))
    }
}

#[cfg(test)]
mod tests {
    //! Values of sacrebleu 2.6.0, recorded.

    use super::*;

    const EXP: Bleu = Bleu { lowercase: false, smooth: Smooth::Exp };

    #[test]
    fn texts_are_tokenized() {
        let tokens = |text: &str| split(&EXP.tokenized(text)).map(str::to_owned).collect::<Vec<_>>().join(" ");
        let table = [
            ("Hello, World!", "Hello , World !"),
            ("1,000.5 a.b 3. .5 -1 2-3", "1,000.5 a . b 3 . . 5 -1 2 - 3"),
            ("wait... it's &quot;x&quot;&amp;lt;", "wait . . . it's \" x \" <"),
            ("well-\nknown\nline", "wellknown line"),
            ("a<skipped>b [c]{d}/e", "ab [ c ] { d } / e"),
        ];
        for (text, expected) in table {
            assert_eq!(tokens(text), expected, "{text:?}");
        }
    }
}
