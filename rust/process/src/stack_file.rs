//! The file of a worker's stack, and the shown part of it. Any bytes in it are text, and it is
//! bounded: the file by a size that the worker can't change, the shown stack by `LONGEST`. The
//! first page of the file is for the words that the supervisor writes (`SharedPage`), which saves
//! one descriptor for each worker.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, SeekFrom};
use tokio::sync::Mutex;

/// Name of the file for the system.
pub(super) const NAME: &str = "guerdon-stack";
/// Room for a hundred frames, which is what `faulthandler` writes at most.
const SIZE: usize = 64 << 10;
/// Position of the stack's beginning, behind the supervisor's page, which no stack can reach.
const START: u64 = 4096;
/// Most bytes of a stack that is shown.
const LONGEST: usize = 16 << 10;
/// Beginning of `faulthandler`'s output for one thread, the one that handles the signal.
const HEADER: &str = "Stack (most recent call first):";

/// The file that a worker's stack is written to.
pub(super) struct StackFile {
    fd: Arc<OwnedFd>,
    /// Locked during a request; true if there was a request before.
    pub requests: Mutex<bool>,
}

impl StackFile {
    pub(super) fn new() -> io::Result<Self> {
        let fd = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, START + SIZE as u64)?;
        rustix::fs::seek(&fd, SeekFrom::Start(START))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self { fd: Arc::new(fd), requests: Mutex::default() })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The file, for the writer of the supervisor's page.
    pub(super) fn shared(&self) -> Arc<OwnedFd> {
        self.fd.clone()
    }

    /// Empties the file. The next text is written from its start, because both ends share one
    /// position.
    pub(super) fn clear(&self) -> io::Result<()> {
        rustix::fs::fallocate(&self.fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, START, SIZE as u64)?;
        rustix::fs::seek(&self.fd, SeekFrom::Start(START))?;
        Ok(())
    }

    /// Returns the text written since it was emptied.
    pub(super) fn read(&self) -> String {
        let mut bytes = vec![0; SIZE];
        let got = rustix::io::pread(&self.fd, &mut bytes, START).unwrap_or(0);
        bytes.truncate(got);
        if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
            bytes.truncate(end);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Returns whether the beginning of a stack has been written.
pub(super) fn is_begun(text: &str) -> bool {
    text.contains(HEADER)
}

/// Returns whether the outermost frame, or the note about more frames, is at the end.
pub(super) fn is_whole(text: &str) -> bool {
    text.strip_suffix('\n')
        .and_then(|text| text.lines().next_back())
        .is_some_and(|line| line == "  ..." || (line.ends_with(" in <module>") && line.contains("_zygote.py\", line ")))
}

/// Returns the last stack in `faulthandler`'s output, in the order and form of a traceback, without
/// our frames; `None` if no frame is left.
pub(super) fn shown(text: &str, ours: &str) -> Option<String> {
    let (_, frames) = text.rsplit_once(HEADER)?;
    let mut lines: Vec<String> = Vec::new();
    for line in frames.lines() {
        if line == "  ..." {
            lines.push("  …".to_owned());
        }
        let Some((file, rest)) = line.strip_prefix("  File \"").and_then(|line| line.rsplit_once("\", line ")) else {
            continue;
        };
        let Some((number, name)) = rest.split_once(" in ") else { continue };
        if !file.strip_prefix(ours).is_some_and(|rest| rest.starts_with('/')) {
            lines.push(format!("  File \"{file}\", line {number}, in {name}"));
        }
    }
    if !lines.iter().any(|line| line.starts_with("  File ")) {
        return None;
    }
    let mut shown = String::from("Stack (most recent call last):");
    let mut left = LONGEST;
    let kept = lines.iter().take_while(|line| {
        left = left.saturating_sub(line.len() + 1);
        left > 0
    });
    for line in kept.collect::<Vec<_>>().into_iter().rev() {
        shown.push('\n');
        shown.push_str(line);
    }
    shown.push('\n');
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = "Stack (most recent call first):
  File \"/u/my rewards.py\", line 7 in inner, in it
  File \"/u/my rewards.py\", line 3 in score
  File \"/g/_worker/worker.py\", line 171 in _samples
  File \"/g/_worker/_zygote.py\", line 30 in <module>
";

    #[test]
    fn a_stack_reads_like_a_traceback_without_our_frames() {
        let expected = "Stack (most recent call last):
  File \"/u/my rewards.py\", line 3, in score
  File \"/u/my rewards.py\", line 7, in inner, in it
";
        assert_eq!(shown(WRITTEN, "/g/_worker").as_deref(), Some(expected));
        // A late answer to an earlier question comes before it.
        assert_eq!(shown(&format!("  File \"/x\", line 1 in old\n{WRITTEN}"), "/g/_worker").as_deref(), Some(expected));
        let deep = format!("{HEADER}\n{}  ...\n", "  File \"/u/r.py\", line 1 in down\n".repeat(100));
        assert!(shown(&deep, "/g/_worker").unwrap().starts_with("Stack (most recent call last):\n  …\n  File"));
    }

    #[test]
    fn any_bytes_are_bounded_text() {
        assert_eq!(shown("", "/g"), None);
        assert_eq!(shown("garbage\n  File \"", "/g"), None);
        assert_eq!(shown(&format!("{HEADER}\n  File \"/g/x.py\", line 1 in ours\n"), "/g"), None);
        let long = format!("{HEADER}\n{}", "  File \"/u\", line 1 in f\n".repeat(5000));
        assert!(shown(&long, "/g").unwrap().len() <= LONGEST + 100);
    }

    #[test]
    fn the_end_of_a_stack_shows() {
        assert!(is_whole(WRITTEN));
        assert!(!is_whole(&WRITTEN[..WRITTEN.len() - 1]));
        assert!(!is_whole("Stack (most recent call first):\n  File \"/u/x.py\", line 7 in <module>\n"));
        assert!(is_whole("Stack (most recent call first):\n  File \"/u/x.py\", line 7 in f\n  ...\n"));
    }

    #[test]
    fn a_worker_can_not_make_the_file_grow() {
        let stack = StackFile::new().unwrap();
        let bytes = vec![b'x'; SIZE + 4096];
        for _ in 0..2 {
            assert_eq!(rustix::io::write(&stack.fd, &bytes[..10]), Ok(10));
            assert_eq!(stack.read(), "x".repeat(10));
            assert_eq!(rustix::io::write(&stack.fd, &bytes), Ok(SIZE - 10)); // no further
            stack.clear().unwrap();
            assert_eq!(stack.read(), "");
        }
        let mut page = [1; START as usize];
        rustix::io::pread(&stack.fd, &mut page, 0).unwrap();
        assert!(page.iter().all(|byte| *byte == 0));
    }
}
