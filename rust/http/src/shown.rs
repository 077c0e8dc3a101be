//! What came from a server, in a reason: quoted, and cut where it is long.

/// How much of it a reason shows, in bytes.
const SHOWN: usize = 300;
/// What a text ends with in a reason that was cut.
const CUT: &str = "\"…";

/// A text for a reason.
pub fn shown(text: &str) -> String {
    let begun = begin(text);
    let end_mark = if begun.len() < text.len() { CUT } else { "\"" };
    let quoted = format!("{begun:?}");
    format!("{}{end_mark}", &quoted[..quoted.len() - 1])
}

/// The same of an error's own words, which may hold a server's: without quotation marks.
pub fn cut(text: &str) -> String {
    let begun = begin(text);
    if begun.len() < text.len() { format!("{begun}…") } else { text.to_owned() }
}

fn begin(text: &str) -> &str {
    let mut end = text.len().min(SHOWN);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
