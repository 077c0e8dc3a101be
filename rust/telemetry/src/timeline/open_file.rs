//! Opens a path that should be a file, and never waits for the other end if it is a pipe.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file for reading. It checks the type of the file after it was opened, so that no change
/// of the path comes between.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    // An open of a pipe without this flag waits for a writer.
    let without_waiting = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(without_waiting).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no file")) }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use guerdon_testkit::TempFolder;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;
    use crate::timeline::ring::Ring;
    use crate::timeline::summary::Summary;

    /// Fails instead of waiting for ever.
    fn within_seconds<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        std::thread::spawn(move || done.send(look()));
        result.recv_timeout(Duration::from_secs(20)).expect("it waits for the other end of the pipe")
    }

    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let folder = TempFolder::create().unwrap();
        let path = folder.0.join("run.pftrace");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let (one, other) = (path.clone(), path.clone());
        let made = within_seconds(move || Ring::create(&one, 4 << 20).map(|(_, path)| path));
        assert_eq!(made.unwrap_err().to_string(), "it is no file");
        let shown = within_seconds(move || Summary::read(&other));
        assert_eq!(shown.unwrap_err().to_string(), "it is no file");
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1, "something was made beside it");
        assert!(path.exists(), "the pipe was touched");
    }

    #[test]
    fn a_folder_is_no_file() {
        let folder = TempFolder::create().unwrap();
        assert_eq!(open_file(&folder.0).unwrap_err().to_string(), "it is no file");
        assert_eq!(open_file(&folder.0.join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
