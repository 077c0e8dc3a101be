//! Shown lines of a crashed interpreter's report: all except the frames of the worker program below
//! the user's frames, which don't help to find the fault.
//!
//! - A stack without a frame of the user's is shown whole.
//! - Lines keep their order, and at most `MOST_HELD` wait for the ones after them.

/// Beginning of the interpreter's report.
pub(super) const BEGINNING: &[u8] = b"Fatal Python error: ";
/// More frames than the worker program has below a function; `faulthandler` writes at most a
/// hundred.
const MOST_HELD: usize = 128;

/// The crash report in the output of one process, if there is one.
#[derive(Default)]
pub(super) struct CrashReport {
    begun: bool,
    /// True once the present stack has had a frame of the user's.
    has_users: bool,
    /// Frames of the worker program after which no other frame of their stack came yet.
    held: Vec<Vec<u8>>,
}

impl CrashReport {
    /// Adds a line, and shows the lines that can be shown now.
    pub(super) fn feed(&mut self, line: &[u8], mut show: impl FnMut(&[u8])) {
        self.begun |= line.starts_with(BEGINNING);
        match frame(line).filter(|_| self.begun) {
            Some(Frame::Ours) if self.held.len() < MOST_HELD => {
                self.held.push(line.to_vec());
                return;
            }
            Some(frame) => {
                self.held.drain(..).for_each(|line| show(&line));
                self.has_users |= frame == Frame::Users;
            }
            None => self.end(&mut show),
        }
        show(line);
    }

    /// Ends the stack.
    pub(super) fn end(&mut self, mut show: impl FnMut(&[u8])) {
        let has_users = std::mem::take(&mut self.has_users);
        self.held.drain(..).filter(|_| !has_users).for_each(|line| show(&line));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// A line of the worker program.
    Ours,
    Users,
}

/// Returns the owner of the frame in a line of `faulthandler`.
fn frame(line: &[u8]) -> Option<Frame> {
    let line = line.strip_prefix(b"  File \"")?;
    let end = line.windows(8).position(|part| part == b"\", line ")?;
    let ours = line[..end].windows(17).any(|part| part == b"/guerdon/_worker/");
    Some(if ours { Frame::Ours } else { Frame::Users })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: [&str; 3] =
        ["Fatal Python error: Segmentation fault", "", "Current thread 0x0007 (most recent call first):"];
    const OURS: &str = "  File \"/venv/site-packages/guerdon/_worker/worker.py\", line 212 in _samples";
    const USERS: &str = "  File \"/home/me/rewards.py\", line 7 in inner";

    fn shown(lines: &[&str]) -> Vec<String> {
        let (mut report, mut seen) = (CrashReport::default(), Vec::new());
        for line in lines {
            report.feed(line.as_bytes(), |line| seen.push(String::from_utf8_lossy(line).into_owned()));
        }
        report.end(|line| seen.push(String::from_utf8_lossy(line).into_owned()));
        seen
    }

    #[test]
    fn frames_below_the_users_are_not_shown() {
        let after = ["", "Extension modules: numpy.core (total: 1)"];
        let all = [&HEAD[..], &[USERS, OURS, OURS], &after].concat();
        assert_eq!(shown(&all), [&HEAD[..], &[USERS], &after].concat());
        // A function that calls into the worker program, as a stateful one does.
        assert_eq!(shown(&[&HEAD[..], &[OURS, USERS, OURS]].concat()), [&HEAD[..], &[OURS, USERS]].concat());
        let threads = [&HEAD[..], &[USERS, OURS], &HEAD[1..], &[USERS, OURS]].concat();
        assert_eq!(shown(&threads), [&HEAD[..], &[USERS], &HEAD[1..], &[USERS]].concat());
    }

    #[test]
    fn all_other_lines_are() {
        let alone = [&HEAD[..], &[OURS; 3], &["", "Extension modules: none"]].concat();
        assert_eq!(shown(&alone), alone);
        let without_a_crash = [USERS, OURS, OURS, "said by a function"];
        assert_eq!(shown(&without_a_crash), without_a_crash);
        let endless = [&HEAD[..], &[OURS; 500]].concat();
        assert_eq!(shown(&endless), endless);
    }
}
