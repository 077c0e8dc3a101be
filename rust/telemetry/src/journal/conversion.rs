//! Makes a Parquet file of a stream that is complete or whose writer died, in steps between which
//! the writer writes rows.
//!
//! - The complete file is renamed to its name, and then the stream is removed.
//! - If a stream ends within a message, its complete messages count.
//! - A stream that is damaged, of another version or can't be read now stays as it is.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::read_record_batch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::errors::ParquetError;

use crate::journal::layout::{SCHEMA, SCHEMA_KEY};
use crate::journal::messages::{Ahead, Message, ahead, damaged};
use crate::journal::parquet_file::ParquetFile;
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
    schema: SchemaRef,
    /// Values of the dictionaries by their numbers in the stream.
    dictionaries: HashMap<i64, ArrayRef>,
    target: Option<ParquetFile>,
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
    pub(crate) fn start(stream: OwnedStream) -> io::Result<Option<Self>> {
        let finished = stream.finished();
        let Ahead::Whole(first) = ahead(&stream.file, 0)? else {
            // Its writer died while it wrote the first message: there are no rows.
            fs::remove_file(&stream.path)?;
            return Ok(None);
        };
        let schema = unless_damaged(|| {
            let schema = first.head()?.header_as_schema().ok_or_else(|| damaged(0))?;
            try_fb_to_schema(schema).map_err(part::io_error)
        })?;
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
        let schema = Arc::new(schema);
        let dictionaries = HashMap::new();
        // A changed schema may have types that Parquet lacks.
        let target = unless_damaged(|| ParquetFile::new(file, &schema).map_err(io_error));
        let target = Some(target.inspect_err(|_| drop(fs::remove_file(&temporary)))?);
        Ok(Some(Self { stream, schema, dictionaries, target, temporary, rows: 0, good: first.end }))
    }

    /// Converts the next rows. Returns the result after the last ones.
    pub(crate) fn step(&mut self) -> io::Result<Option<ConvertedStream>> {
        if self.target.is_none() {
            return Ok(Some(ConvertedStream::default()));
        }
        let mut at = self.good;
        let breaks_off = loop {
            let message = match ahead(&self.stream.file, at)? {
                Ahead::Whole(message) => message,
                Ahead::End => break false,
                Ahead::BreaksOff => break true,
            };
            at = message.end;
            let Some(rows) = unless_damaged(|| self.read(&message))? else { continue };
            if let Some(target) = &mut self.target {
                self.rows += rows.num_rows() as u64;
                unless_damaged(|| target.write(&rows).map_err(io_error))?;
            }
            self.good = at;
            return Ok(None);
        };
        let length = self.stream.file.metadata()?.len();
        let cut = if breaks_off { length.saturating_sub(self.good) } else { 0 };
        self.finish()?;
        Ok(Some(ConvertedStream { rows: self.rows, cut }))
    }

    /// Reads a message: rows, or the values of a dictionary for those that follow.
    fn read(&mut self, message: &Message) -> io::Result<Option<RecordBatch>> {
        let head = message.head()?;
        let version = head.version();
        let batch = |batch, schema| {
            read_record_batch(&message.body, batch, schema, &self.dictionaries, None, &version).map_err(part::io_error)
        };
        if let Some(rows) = head.header_as_record_batch() {
            return batch(rows, self.schema.clone()).map(Some);
        }
        // Dictionaries are written whole. The library's reader adds to them too, by much code.
        let dictionary = head.header_as_dictionary_batch().filter(|dictionary| !dictionary.isDelta());
        let dictionary = dictionary.ok_or_else(|| damaged(message.end))?;
        let values = dictionary.data().ok_or_else(|| damaged(message.end))?;
        let schema = Schema::new(vec![Field::new("values", DataType::Utf8, true)]);
        let values = batch(values, Arc::new(schema))?.column(0).clone();
        self.dictionaries.insert(dictionary.id(), values);
        Ok(None)
    }

    fn finish(&mut self) -> io::Result<()> {
        let Some(target) = &mut self.target else { return Ok(()) };
        if self.rows > 0 {
            unless_damaged(|| target.finish().map_err(io_error))?.sync_data()?;
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
