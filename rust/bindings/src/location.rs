//! Last known location of a call that ran out of time: the innermost frame of its stack that means
//! something to the author of the function. Frames of Python's own library are passed over unless
//! there is nothing else; only the last traceback of a text counts, since those before it are
//! causes of the exception; any text can be read, and the shown part is bounded.

use std::fmt::Write;

use guerdon_core::outcome::{Note, Traceback};

/// Most bytes of a file name or a function's name that are shown; of a file name the end says more.
const LONGEST: usize = 200;

/// One line of a traceback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TracebackLine<'a> {
    file: &'a str,
    line: &'a str,
    name: &'a str,
}

/// The reason and the traceback of a failure as the package gets them: the reason of a call that
/// ran out of time says where its code was last seen.
pub fn described(note: Note) -> (String, Option<String>) {
    let Note { mut reason, traceback } = note;
    if let Some(Traceback::LastSeen(stack)) = &traceback
        && let Some(TracebackLine { file, line, name }) = innermost(stack)
    {
        let file = &file[file.ceil_char_boundary(file.len().saturating_sub(LONGEST))..];
        let name = &name[..name.floor_char_boundary(LONGEST)];
        // Writing to a string does not fail.
        let _ = write!(reason, "; last seen in {name} ({file}:{line})");
    }
    (reason, traceback.map(|traceback| traceback.text().to_owned()))
}

fn innermost(traceback: &str) -> Option<TracebackLine<'_>> {
    let (mut any, mut own) = (None, None);
    for line in traceback.lines() {
        if line.ends_with("(most recent call last):") {
            (any, own) = (None, None);
        } else if let Some(found) = parse(line) {
            any = Some(found);
            own = if is_library(found.file) { own } else { any };
        }
    }
    own.or(any)
}

fn parse(line: &str) -> Option<TracebackLine<'_>> {
    let (file, rest) = line.strip_prefix("  File \"")?.rsplit_once("\", line ")?;
    let (number, name) = rest.split_once(", in ")?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some(TracebackLine { file, line: number, name })
}

/// Returns whether a file is of Python's own library: `…/lib/python3.11/…`, but not an installed
/// package.
fn is_library(file: &str) -> bool {
    let below_lib = ["/lib/python3.", "/lib64/python3."].iter().any(|folder| file.contains(folder));
    file.starts_with("<frozen ") || (below_lib && !file.contains("-packages/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(traceback: &str) -> String {
        described(Note { reason: "late".to_owned(), traceback: Some(Traceback::LastSeen(traceback.to_owned())) }).0
    }

    #[test]
    fn the_innermost_frame_outside_of_the_library_is_named() {
        let text = "Traceback (most recent call last):
  File \"/u/rewards.py\", line 3, in score
    return check(text)
  File \"/usr/lib/python3/dist-packages/sympy/core.py\", line 9, in check
  File \"/usr/lib/python3.11/re/__init__.py\", line 166, in match
    return _compile(pattern, flags).match(string)
           ^^^^^^^
guerdon.Expired: the call has used up its timeout
";
        assert_eq!(reason(text), "late; last seen in check (/usr/lib/python3/dist-packages/sympy/core.py:9)");
        let library =
            "Stack (most recent call last):\n  File \"/usr/lib/python3.11/threading.py\", line 320, in wait\n";
        assert_eq!(reason(library), "late; last seen in wait (/usr/lib/python3.11/threading.py:320)");
    }

    #[test]
    fn earlier_lines_do_not_count() {
        let text = "Traceback (most recent call last):
  File \"/u/a.py\", line 1, in first
ValueError: x

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File \"/u/b.py\", line 2, in second
";
        assert_eq!(reason(text), "late; last seen in second (/u/b.py:2)");
    }

    #[test]
    fn any_text_is_read_and_bounded() {
        for text in
            ["", "nothing", "  File \"", "  File \"x\", line", "  File \"x\", line a, in b", "  File \"x\", line 1"]
        {
            assert_eq!(reason(text), "late", "{text}");
        }
        let raised = Note {
            reason: "late".to_owned(),
            traceback: Some(Traceback::Raised("  File \"x\", line 1, in f".to_owned())),
        };
        assert_eq!(described(raised).0, "late");
        assert_eq!(described(Note { reason: "late".to_owned(), traceback: None }), ("late".to_owned(), None));
        let long = format!("  File \"{}\", line 1, in {}\n", "ä".repeat(999), "ö".repeat(999));
        assert!(reason(&long).len() < 2 * LONGEST + 40);
    }
}
