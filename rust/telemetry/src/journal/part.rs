//! One part while it grows: an Arrow stream in a file that its owner holds locked.
//!
//! - A stream ends with a complete message, unless its owner died while it wrote one. Bytes after
//!   the last complete message are ignored.
//! - The name of a part is used once: no two writers share one, whatever their run and process.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{IpcWriteOptions, StreamEncoder};
use arrow_schema::{ArrowError, Schema};
use rustix::fs::{FlockOperation, flock};

pub(crate) const STREAM: &str = "arrows";
pub(crate) const FINISHED: &str = "parquet";
/// Alignment of the buffers in a message: small, so that little is lost between small buffers.
const ALIGNMENT: usize = 8;

pub(crate) fn io_error(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        other => io::Error::other(other),
    }
}

/// Returns whether a file is the stream of a part by its name: `<run>-r<rank>-<pid>-<part>.arrows`.
pub(crate) fn is_stream(path: &Path) -> bool {
    let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let number = |text: Option<&str>| text.is_some_and(|text| text.parse::<u32>().is_ok());
    let mut pieces = stem.rsplitn(3, '-');
    path.extension().is_some_and(|extension| extension == STREAM)
        && number(pieces.next())
        && number(pieces.next())
        && pieces.next().and_then(|front| front.rsplit_once("-r")).is_some_and(|(_, rank)| rank.parse::<i32>().is_ok())
}

/// The names of one writer's parts.
pub(crate) struct PartNames {
    folder: PathBuf,
    /// Run, rank and process.
    stem: String,
    next: u32,
}

impl PartNames {
    pub(crate) fn new(folder: PathBuf, run: &str, rank: i32) -> Self {
        let safe = |letter: char| if letter.is_ascii_alphanumeric() || "._".contains(letter) { letter } else { '-' };
        let run: String = run.chars().take(100).map(safe).collect();
        // The file would be hidden.
        let run = run.trim_start_matches('.');
        Self { folder, stem: format!("{run}-r{rank}-{}", std::process::id()), next: 0 }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes a locked file with a name that no part has.
    fn create(&mut self) -> io::Result<OwnedStream> {
        loop {
            let path = self.folder.join(format!("{}-{:05}.{STREAM}", self.stem, self.next));
            self.next += 1;
            let file = match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            // A recovering process may have locked it first.
            let Some(stream) = OwnedStream::lock(path, file) else { continue };
            if stream.finished().exists() {
                fs::remove_file(&stream.path)?;
                continue;
            }
            return Ok(stream);
        }
    }
}

/// A stream whose lock this process holds, for as long as the value lives.
pub(crate) struct OwnedStream {
    pub path: PathBuf,
    pub file: File,
}

impl OwnedStream {
    /// Locks a new stream; `None` if a recovering process has it.
    fn lock(path: PathBuf, file: File) -> Option<Self> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(error) if io::Error::from(error).kind() == ErrorKind::WouldBlock => return None,
            // A file system without locks: a file that can't be locked is not recovered.
            _ => {}
        }
        Self { path, file }.if_linked()
    }

    /// Locks a stream whose writer died; `None` if another process holds it, if it is gone, or if
    /// this user may only read it. Returns an error if it can't be known whether its writer lives.
    pub(crate) fn abandoned(path: &Path) -> io::Result<Option<Self>> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) => {
                use ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
                let others = matches!(error.kind(), NotFound | PermissionDenied | ReadOnlyFilesystem);
                return if others { Ok(None) } else { Err(error) };
            }
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from) {
            Ok(()) => Ok(Self { path: path.to_owned(), file }.if_linked()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => {
                let problem = format!("can't be locked ({error}), so nobody knows whether its writer lives");
                Err(io::Error::new(error.kind(), problem))
            }
        }
    }

    fn if_linked(self) -> Option<Self> {
        let there = self.file.metadata().is_ok_and(|file| file.nlink() > 0);
        there.then_some(self)
    }

    /// Returns the path of the part's Parquet file.
    pub(crate) fn finished(&self) -> PathBuf {
        self.path.with_extension(FINISHED)
    }
}

/// The stream of a part that rows are added to.
pub(crate) struct Stream {
    owned: OwnedStream,
    encoder: StreamEncoder,
    /// Bytes of the complete messages.
    bytes: u64,
    rows: u64,
}

impl Stream {
    pub(crate) fn create(names: &mut PartNames, schema: &Schema) -> io::Result<Self> {
        let options = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5).map_err(io_error)?;
        let encoder = StreamEncoder::try_new_with_options(schema, options).map_err(io_error)?;
        Ok(Self { owned: names.create()?, encoder, bytes: 0, rows: 0 })
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }

    /// Appends rows. After it returns they are in the system's cache, and survive this process.
    pub(crate) fn append(&mut self, rows: &RecordBatch) -> io::Result<()> {
        let mut message = Vec::new();
        for buffer in self.encoder.encode(rows).map_err(io_error)? {
            message.extend_from_slice(buffer.as_slice());
        }
        self.owned.file.write_all(&message)?;
        self.bytes += message.len() as u64;
        self.rows += rows.num_rows() as u64;
        Ok(())
    }

    /// Returns whether the file was removed.
    pub(crate) fn is_gone(&self) -> bool {
        self.owned.file.metadata().is_ok_and(|file| file.nlink() == 0)
    }

    /// Ends the stream after its last complete message.
    pub(crate) fn end(self) -> OwnedStream {
        let mut owned = self.owned;
        let end = |file: &mut File| -> io::Result<()> {
            file.set_len(self.bytes)?;
            file.seek(SeekFrom::Start(self.bytes))?;
            for buffer in self.encoder.finish().map_err(io_error)? {
                file.write_all(buffer.as_slice())?;
            }
            Ok(())
        };
        // A stream without an end mark ends at its last message.
        let _ = end(&mut owned.file);
        owned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_any_name_makes_a_file_of_its_folder() {
        let names = PartNames::new(PathBuf::from("folder"), "../a b/ü", 3);
        assert_eq!(names.stem, format!("-a-b---r3-{}", std::process::id()));
    }

    #[test]
    fn files_of_other_names_are_not_touched() {
        let is = |name: &str| is_stream(Path::new(name));
        assert!(is("folder/a-b-r0-1-00000.arrows") && is("-r-1-7-123456.arrows"));
        for other in ["data.arrows", "a-r0-1-00000.parquet", "a-r0-1-x.arrows", "a-r0-00000.arrows", "a-rx-1-1.arrows"]
        {
            assert!(!is(other), "{other}");
        }
    }
}
