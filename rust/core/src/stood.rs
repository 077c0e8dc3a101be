//! Where a call stood when its time was up: the innermost frame of a traceback that says something to who wrote the function.
//!
//! - W-1  Frames of Python's own library are passed over while there is another: that a hang is in `re` or `threading` the line of the caller says.
//! - W-2  Only the last traceback of a text counts: those before it are the causes of the exception.
//! - W-3  Any text is read without harm; the words are bounded.

use std::fmt::Write;

/// Most bytes of a file name or a function's name that are shown; of a file name the end says more.
const LONGEST: usize = 200;

/// One line of a traceback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame<'a> {
    file: &'a str,
    line: &'a str,
    name: &'a str,
}

/// Adds to a reason where the call stood, if the traceback tells.
#[must_use]
pub fn and_where(mut reason: String, traceback: Option<&str>) -> String {
    if let Some(Frame { file, line, name }) = traceback.and_then(innermost) {
        let file = &file[file.ceil_char_boundary(file.len().saturating_sub(LONGEST))..];
        let name = &name[..name.floor_char_boundary(LONGEST)];
        // Writing to a string does not fail.
        let _ = write!(reason, "; it stood in {name} ({file}:{line})");
    }
    reason
}

fn innermost(traceback: &str) -> Option<Frame<'_>> {
    let (mut any, mut own) = (None, None);
    for line in traceback.lines() {
        if line.ends_with("(most recent call last):") {
            (any, own) = (None, None); // W-2
        } else if let Some(frame) = frame(line) {
            any = Some(frame);
            own = if is_library(frame.file) { own } else { any };
        }
    }
    own.or(any)
}

fn frame(line: &str) -> Option<Frame<'_>> {
    let (file, rest) = line.strip_prefix("  File \"")?.rsplit_once("\", line ")?;
    let (number, name) = rest.split_once(", in ")?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some(Frame { file, line: number, name })
}

/// Whether a file is of Python's own library, as it is installed everywhere: `…/lib/python3.11/…`, but not what was installed into that.
fn is_library(file: &str) -> bool {
    let below_lib = ["/lib/python3.", "/lib64/python3."].iter().any(|folder| file.contains(folder));
    file.starts_with("<frozen ") || (below_lib && !file.contains("-packages/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(traceback: &str) -> String {
        and_where("late".to_owned(), Some(traceback))
    }

    #[test]
    fn w1_the_innermost_frame_outside_of_the_library_is_named() {
        let text = "Traceback (most recent call last):
  File \"/u/rewards.py\", line 3, in score
    return check(text)
  File \"/usr/lib/python3/dist-packages/sympy/core.py\", line 9, in check
  File \"/usr/lib/python3.11/re/__init__.py\", line 166, in match
    return _compile(pattern, flags).match(string)
           ^^^^^^^
guerdon.Expired: the call has used up its timeout
";
        assert_eq!(told(text), "late; it stood in check (/usr/lib/python3/dist-packages/sympy/core.py:9)");
        let library =
            "Stack (most recent call last):\n  File \"/usr/lib/python3.11/threading.py\", line 320, in wait\n";
        assert_eq!(told(library), "late; it stood in wait (/usr/lib/python3.11/threading.py:320)");
    }

    #[test]
    fn w2_what_came_before_does_not_count() {
        let text = "Traceback (most recent call last):
  File \"/u/a.py\", line 1, in first
ValueError: x

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File \"/u/b.py\", line 2, in second
";
        assert_eq!(told(text), "late; it stood in second (/u/b.py:2)");
    }

    #[test]
    fn w3_any_text_is_read_and_bounded() {
        for text in
            ["", "nothing", "  File \"", "  File \"x\", line", "  File \"x\", line a, in b", "  File \"x\", line 1"]
        {
            assert_eq!(told(text), "late", "{text}");
        }
        assert_eq!(and_where("late".to_owned(), None), "late");
        let long = format!("  File \"{}\", line 1, in {}\n", "ä".repeat(999), "ö".repeat(999));
        assert!(told(&long).len() < 2 * LONGEST + 40);
    }
}
