//! Reads the number within `<name>…</name>`.

use super::candidates::{Candidate, Unread, Which, choose};
use super::numbers::number;
use super::range::Range;

/// The longest attributes of a tag.
const LONGEST_ATTRIBUTES: usize = 200;

/// The score in the tags of this name.
pub fn tagged(text: &str, name: &str, which: Which, range: Option<Range>) -> Result<Candidate, Unread> {
    let candidates = contents(text, name).filter_map(|content| {
        let (inside, closed) = match content {
            Content::Closed(inside) => (inside, true),
            Content::Open(inside) => (inside, false),
        };
        // An empty tag is a mention of the format.
        if !inside.chars().any(char::is_alphanumeric) {
            return None;
        }
        let read = number(inside, Which::Only, range);
        match (read, closed) {
            (Ok(found), true) => Some(Candidate { certain: true, ..found }),
            (Err(Unread::Unclear(why)), true) => Some(Candidate::new(Err(why), true)),
            (Err(Unread::Missing), true) => Some(Candidate::new(Err(format!("no number in <{name}>")), true)),
            // "…in a <score> tag" is a mention, "<score> 8" an unfinished score.
            (_, false) => inside
                .trim_start()
                .starts_with(char::is_numeric)
                .then(|| Candidate::new(Err(format!("a <{name}> that is not closed")), false)),
        }
    });
    choose(which, candidates)
}

/// What stands in a tag, or behind the last one that is not closed.
pub enum Content<'a> {
    Closed(&'a str),
    Open(&'a str),
}

/// The contents of the tags of a name, in order.
pub fn contents<'a>(text: &'a str, name: &str) -> impl Iterator<Item = Content<'a>> {
    let lower = text.to_ascii_lowercase();
    let (opening, closing) = (format!("<{}", name.to_ascii_lowercase()), format!("</{}>", name.to_ascii_lowercase()));
    let (mut from, mut over) = (0, false);
    std::iter::from_fn(move || {
        while !over {
            let close = lower[from..].find(&closing).map(|at| from + at);
            over = close.is_none();
            let end = close.unwrap_or(lower.len());
            let start = last_opening(&lower[from..end], &opening).map(|at| from + at);
            from = end + if close.is_some() { closing.len() } else { 0 };
            if let Some(start) = start {
                let inside = &text[start..end];
                return Some(if close.is_some() { Content::Closed(inside) } else { Content::Open(inside) });
            }
        }
        None
    })
}

/// Where the content of the last opening tag begins.
fn last_opening(text: &str, opening: &str) -> Option<usize> {
    text.rmatch_indices(opening).find_map(|(at, _)| {
        let rest = &text[at + opening.len()..];
        let mut attributes = rest.len().min(LONGEST_ATTRIBUTES);
        while !rest.is_char_boundary(attributes) {
            attributes -= 1;
        }
        let end = rest[..attributes].find('>')?;
        let attributes = &rest[..end];
        let is_tag =
            attributes.is_empty() || (attributes.starts_with(char::is_whitespace) && !attributes.contains('<'));
        is_tag.then_some(at + opening.len() + end + 1)
    })
}
