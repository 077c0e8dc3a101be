//! Fault injection: the text of a request chooses what happens to it: `[[status 500]]`, `[[reset]]`
//! and so on; with `once` only the first time this text comes.

use super::state::JudgeState;

/// Treatment of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// It is answered normally.
    None,
    /// It is answered with a status, and perhaps a `Retry-After`.
    Status(u16, Option<f64>),
    /// The connection is reset.
    Reset,
    /// The connection stays open, and no answer comes.
    Silence,
    /// The answer is not JSON.
    BadJson,
    /// The connection ends in the middle of the answer.
    Truncated,
    /// The answer redirects to another address.
    Redirect,
    /// The key of the request is sent back in an error.
    EchoKey,
}

impl Fault {
    /// Returns the fault that `text` chooses.
    pub fn of(text: &str, shared: &JudgeState) -> Self {
        let mut rest = text;
        while let Some(start) = rest.find("[[") {
            rest = &rest[start + 2..];
            let Some(end) = rest.find("]]") else { break };
            let mut words: Vec<&str> = rest[..end].split_whitespace().collect();
            if words.last() == Some(&"once") {
                words.pop();
                if !shared.spent.lock().insert(text.to_owned()) {
                    continue;
                }
            }
            if let Some(fault) = Self::parse(&words) {
                return fault;
            }
        }
        Self::None
    }

    fn parse(words: &[&str]) -> Option<Self> {
        let number = |at: usize| words.get(at)?.parse::<f64>().ok();
        Some(match *words.first()? {
            "status" => Self::Status(words.get(1)?.parse().ok()?, number(2)),
            "reset" => Self::Reset,
            "silence" => Self::Silence,
            "bad-json" => Self::BadJson,
            "truncated" => Self::Truncated,
            "redirect" => Self::Redirect,
            "echo-key" => Self::EchoKey,
            _ => return None,
        })
    }
}

/// Returns the word after `name` in the text's brackets: of `[[score 7]]` the 7.
pub fn asked<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let start = text.find(&format!("[[{name} "))? + name.len() + 3;
    Some(&text[start..start + text[start..].find("]]")?])
}
