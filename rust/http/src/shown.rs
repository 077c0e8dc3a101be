//! What came from a server, in a reason: quoted, and cut where it is long.

/// How much of it a reason shows, in bytes.
const SHOWN: usize = 300;
/// What a text ends with in a reason that was cut.
const CUT: &str = "\"…";

/// A text for a reason.
pub fn shown(text: &str) -> String {
    let mut end = text.len().min(SHOWN);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let end_mark = if end < text.len() { CUT } else { "\"" };
    let quoted = format!("{:?}", &text[..end]);
    format!("{}{end_mark}", &quoted[..quoted.len() - 1])
}
