//! Quotes what a server sent, for a reason: in quotation marks, and truncated where it is long.

/// Longest part of a text that a reason shows, in bytes.
const LONGEST: usize = 300;
/// End of a text in a reason that was cut.
const ELLIPSIS: &str = "\"…";

/// A text for a reason.
pub fn quoted(text: &str) -> String {
    let start = beginning(text);
    let end_mark = if start.len() < text.len() { ELLIPSIS } else { "\"" };
    let quoted = format!("{start:?}");
    format!("{}{end_mark}", &quoted[..quoted.len() - 1])
}

/// The same without quotation marks, for an error's message, which may quote a server.
pub fn truncated(text: &str) -> String {
    let start = beginning(text);
    if start.len() < text.len() { format!("{start}…") } else { text.to_owned() }
}

fn beginning(text: &str) -> &str {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
