//! Cuts the output of a worker into lines, and finds the marks between the outputs of two
//! functions.

const LONGEST_LINE: usize = 8192;
/// More bytes than a mark has.
const LONGEST_MARK: usize = 32;

/// Content of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Line(&'a [u8]),
    /// The following lines come from this function.
    Mark(usize),
}

/// Beginning of a mark; the function's number and a newline follow.
const MARK: &[u8] = b"\0guerdon:";

/// Cuts a stream into lines.
#[derive(Default)]
pub(super) struct Lines {
    held: Vec<u8>,
    /// True inside a line that was too long and whose beginning was passed on.
    skipping: bool,
    /// True if the last line ended with a carriage return: a newline right after it belongs to
    /// that.
    returned: bool,
}

impl Lines {
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut give: impl FnMut(Piece<'_>)) {
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.hold(&bytes[..end], &mut give);
            let returns = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.end(returns, &mut give);
        }
        self.hold(bytes, &mut give);
    }

    /// Adds a piece of a line. A line that is too long is passed on at once, and its rest is
    /// skipped except for a mark at its end.
    fn hold(&mut self, bytes: &[u8], give: &mut impl FnMut(Piece<'_>)) {
        if bytes.is_empty() {
            return;
        }
        self.returned = false;
        self.held.extend_from_slice(bytes);
        if self.skipping {
            let kept = self.held.len().saturating_sub(LONGEST_MARK);
            self.held.drain(..kept);
        } else if self.held.len() > LONGEST_LINE {
            give(Piece::Line(&self.held[..LONGEST_LINE]));
            self.held.drain(..LONGEST_LINE);
            self.skipping = true;
            let kept = self.held.len().saturating_sub(LONGEST_MARK);
            self.held.drain(..kept);
        }
    }

    fn end(&mut self, returns: bool, give: &mut impl FnMut(Piece<'_>)) {
        let empty = self.held.is_empty() && !self.skipping;
        let after_return = std::mem::replace(&mut self.returned, returns);
        if empty && (returns || after_return) {
            return; // progress bars begin with a return; `\r\n` ends one line
        }
        let mark = mark_at_end(&self.held);
        let text = mark.map_or(self.held.len(), |(start, _)| start);
        // A mark ends the line before it, and is not a line itself.
        if !self.skipping && (mark.is_none() || text > 0) {
            give(Piece::Line(&self.held[..text]));
        }
        if let Some((_, function)) = mark {
            give(Piece::Mark(function));
        }
        self.skipping = false;
        self.held.clear();
    }

    pub(super) fn flush(&mut self, mut give: impl FnMut(Piece<'_>)) {
        if !self.held.is_empty() {
            self.end(false, &mut give);
        }
    }
}

/// Returns the beginning of the mark at the end of a line, and the function that it names.
fn mark_at_end(line: &[u8]) -> Option<(usize, usize)> {
    let start = line.iter().rposition(|byte| *byte == 0)?;
    let digits = line[start..].strip_prefix(MARK)?;
    let function = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((start, function))
}
#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the content of a stream that arrives in these pieces: lines, and marks as `<3>`.
    fn cut(pieces: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        let mut give = |piece: Piece<'_>| {
            seen.push(match piece {
                Piece::Line(line) => String::from_utf8_lossy(line).into_owned(),
                Piece::Mark(function) => format!("<{function}>"),
            });
        };
        for piece in pieces {
            lines.feed(piece, &mut give);
        }
        lines.flush(&mut give);
        seen
    }

    #[test]
    fn lines_are_whole_and_bounded() {
        let long = [b'x'; LONGEST_LINE + 1];
        let seen = cut(&[b"a\nb", b"c\n\n", &long, b"rest of it\nlast"]);
        assert_eq!(seen, ["a", "bc", "", &"x".repeat(LONGEST_LINE), "last"]);
    }

    #[test]
    fn marks_are_found_wherever_they_stand() {
        assert_eq!(cut(&[b"a\n\0guerdon:3\nb\n"]), ["a", "<3>", "b"]);
        assert_eq!(cut(&[b"no end\0guer", b"don:12", b"\nb"]), ["no end", "<12>", "b"]);
        let long = "x".repeat(3 * LONGEST_LINE);
        assert_eq!(cut(&[long.as_bytes(), b"y\0guerdon:1\nb\n"]), [&long[..LONGEST_LINE], "<1>", "b"]);
        assert_eq!(cut(&[long.as_bytes(), b"\0guerdon", b":1\nb\n"]), [&long[..LONGEST_LINE], "<1>", "b"]);
        // Bytes that are not a mark are a line.
        assert_eq!(cut(&[b"\0guerdon:\n\0guerdon:x\n"]), ["\0guerdon:", "\0guerdon:x"]);
    }

    #[test]
    fn a_return_ends_a_line() {
        assert_eq!(cut(&[b"\r 10%\r 20%\r\n", b"done\r", b"\nnext\n\n"]), [" 10%", " 20%", "done", "next", ""]);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_in_any_pieces_give_bounded_lines(stream: Vec<u8>, cuts: Vec<proptest::sample::Index>) {
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            ends.extend([0, stream.len()]);
            ends.sort_unstable();
            let pieces: Vec<&[u8]> = ends.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect();
            let whole = cut(&[&stream]);
            proptest::prop_assert_eq!(&cut(&pieces), &whole);
            proptest::prop_assert!(whole.iter().all(|line| !line.contains(['\n', '\r'])));
        }
    }
}
