//! Makes a Parquet file of a stream that is complete or whose writer died, in steps between which
//! the writer writes rows.
//!
//! - The complete file is renamed to its name, and then the stream is removed.
//! - If a stream ends within a message, its complete messages count.
//! - A stream that is damaged, of another version or can't be read now stays as it is.

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use arrow_ipc::MessageHeader;
use arrow_ipc::reader::StreamReader;
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;

use crate::journal::layout::{SCHEMA, SCHEMA_KEY, properties};
use crate::journal::messages::{Ahead, ahead};
use crate::journal::part::{self, OwnedStream};

/// Result of a stream's conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConvertedStream {
    pub rows: u64,
    /// Bytes after the last complete message.
    pub cut: u64,
}

pub(crate) struct Conversion {
    stream: OwnedStream,
    source: StreamReader<BufReader<File>>,
    target: Option<ArrowWriter<File>>,
    temporary: PathBuf,
    rows: u64,
    /// End of the last complete message.
    good: u64,
}

impl Conversion {
    /// Begins with a stream whose writer died; `None` if it did not.
    pub(crate) fn of_abandoned(path: &Path) -> io::Result<Option<Self>> {
        OwnedStream::abandoned(path)?.map_or(Ok(None), Self::start)
    }

    /// Begins; `None` if the stream has no message, or if its Parquet file exists.
    pub(crate) fn start(mut stream: OwnedStream) -> io::Result<Option<Self>> {
        let finished = stream.finished();
        let Ahead::Whole(good) = ahead(&stream.file, 0, MessageHeader::Schema)? else {
            // Its writer died while it wrote the first message: there are no rows.
            fs::remove_file(&stream.path)?;
            return Ok(None);
        };
        stream.file.seek(SeekFrom::Start(0))?;
        let file = BufReader::new(stream.file.try_clone()?);
        let source = unless_damaged(|| StreamReader::try_new(file, None).map_err(part::io_error))?;
        let schema = source.schema();
        let problem = match schema.metadata().get(SCHEMA_KEY) {
            Some(version) if version == SCHEMA => None,
            Some(version) => Some(format!("has the schema {version:?} of another version")),
            None => Some("is no stream of a journal".to_owned()),
        };
        if let Some(problem) = problem {
            return Err(io::Error::new(ErrorKind::InvalidData, problem));
        }
        // A writer died after it had renamed the file, and before it removed the stream.
        if finished.try_exists()? {
            fs::remove_file(&stream.path)?;
            return Ok(None);
        }
        let mut temporary = finished.into_os_string();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        let file = File::create(&temporary)?;
        let mut conversion = Self { stream, source, target: None, temporary, rows: 0, good };
        let target = ArrowWriter::try_new(file, schema.clone(), Some(properties(&schema))).map_err(io_error)?;
        conversion.target = Some(target);
        Ok(Some(conversion))
    }

    /// Converts the next message. Returns the result after the last one.
    pub(crate) fn step(&mut self) -> io::Result<Option<ConvertedStream>> {
        let Some(target) = &mut self.target else { return Ok(Some(ConvertedStream::default())) };
        let ahead = ahead(&self.stream.file, self.good, MessageHeader::RecordBatch)?;
        if let Ahead::Whole(end) = ahead {
            let missing = || io::Error::new(ErrorKind::InvalidData, "has a message without rows");
            self.rows += unless_damaged(|| {
                let rows = self.source.next().ok_or_else(missing)?.map_err(part::io_error)?;
                target.write(&rows).map_err(io_error)?;
                Ok(rows.num_rows() as u64)
            })?;
            self.good = end;
            return Ok(None);
        }
        let length = self.stream.file.metadata()?.len();
        let cut = if ahead == Ahead::BreaksOff { length.saturating_sub(self.good) } else { 0 };
        self.finish()?;
        Ok(Some(ConvertedStream { rows: self.rows, cut }))
    }

    fn finish(&mut self) -> io::Result<()> {
        let Some(target) = &mut self.target else { return Ok(()) };
        if self.rows > 0 {
            target.finish().map_err(io_error)?;
            target.inner().sync_data()?;
            fs::rename(&self.temporary, self.stream.finished())?;
        } else {
            fs::remove_file(&self.temporary)?;
        }
        self.target = None;
        fs::remove_file(&self.stream.path)
    }
}

impl Drop for Conversion {
    fn drop(&mut self) {
        if self.target.take().is_some() {
            let _ = fs::remove_file(&self.temporary); // the stream stays
        }
    }
}

/// Runs code that reads a stream. It may panic on changed bytes, which must not end the writer.
fn unless_damaged<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let damaged = |_| Err(io::Error::new(ErrorKind::InvalidData, "is damaged"));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(damaged)
}

fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        other => io::Error::other(other),
    }
}
