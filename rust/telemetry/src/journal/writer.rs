//! The writer's thread: makes rows of complete groups and writes them to disk.
//!
//! - Rows are on disk within `GATHER` and the time that it takes to write, unless it waits for the
//!   GIL to read texts.
//! - It makes Parquet files of finished parts while no rows wait.
//! - If a write fails, rows are dropped and counted until the next try.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arrow_schema::Schema;
use guerdon_core::payload::SharedPayload;

use crate::journal::config::JournalConfig;
use crate::journal::conversion::Conversion;
use crate::journal::layout::metadata;
use crate::journal::part::{OwnedStream, PartNames, Stream};
use crate::journal::problems::Problem;
use crate::journal::recovery::streams;
use crate::journal::rows::{Constants, Rows, samples_of};
use crate::journal::shared::{CompleteGroups, WriterState};
use crate::journal::texts::{Kind, TextColumn, TextSource};

/// Time for which rows are collected before a write: a message of few rows is mostly header.
const GATHER: Duration = Duration::from_millis(200);
/// Number of waiting rows that are written without further delay.
const ENOUGH: usize = 1 << 14;
/// The most samples whose texts are read at once, and their bytes: the GIL is held for a short
/// time, and few texts are in memory twice.
const SAMPLES_AT_ONCE: usize = 1 << 12;
const BYTES_AT_ONCE: usize = 32 << 20;
/// Pause after a failed write.
const TRY_AGAIN: Duration = Duration::from_secs(10);

pub(crate) struct Writer {
    shared: Arc<WriterState>,
    source: Option<Arc<dyn TextSource>>,
    names: PartNames,
    /// Names of texts and chosen columns, with their kinds in the current part.
    texts: Vec<(String, Kind)>,
    dispatcher: String,
    rotate: u64,
    constants: Constants,
    rows: Rows,
    stream: Option<Stream>,
    /// Finished streams of this writer, which are to become Parquet files.
    finished: VecDeque<OwnedStream>,
    /// Streams that other writers may have left. Opened one by one: there may be thousands.
    others: VecDeque<PathBuf>,
    /// The conversion in progress.
    conversion: Option<Conversion>,
    /// No write is tried before this moment.
    retry_at: Option<Instant>,
}

impl Writer {
    pub(crate) fn new(
        config: JournalConfig,
        constants: Constants,
        source: Option<Arc<dyn TextSource>>,
        shared: Arc<WriterState>,
    ) -> Self {
        Self {
            shared,
            source,
            names: PartNames::new(config.folder, &config.run, config.rank),
            texts: config.texts.into_iter().map(|name| (name, Kind::Text)).collect(),
            dispatcher: config.dispatcher,
            rotate: config.rotate,
            constants,
            rows: Rows::default(),
            stream: None,
            finished: VecDeque::new(),
            others: VecDeque::new(),
            conversion: None,
            retry_at: None,
        }
    }

    /// Runs until the queue has ended and all parts are Parquet files.
    pub(crate) fn run(mut self) {
        self.shared.queue.set_consumer();
        // Streams of other runs.
        self.others = streams(self.names.folder()).unwrap_or_default();
        loop {
            let busy = self.converts();
            let seen = self.shared.queue.wait(1, busy.then(Instant::now));
            if seen.rows == 0 {
                if seen.ended {
                    break;
                }
                self.convert();
                continue;
            }
            self.gather();
            self.write_all();
        }
        self.rotate();
        while self.convert() {}
    }

    /// Waits for more rows, for `GATHER` at most.
    fn gather(&mut self) {
        let due = Instant::now() + GATHER;
        loop {
            let busy = self.converts();
            let now = Instant::now();
            let seen = self.shared.queue.wait(ENOUGH, Some(if busy { now } else { due }));
            if seen.rows >= ENOUGH || seen.ended || now >= due {
                return;
            }
            if busy {
                self.convert();
            }
        }
    }

    /// Writes the waiting rows.
    fn write_all(&mut self) {
        loop {
            let taken = self.shared.queue.take(ENOUGH);
            if taken.is_empty() {
                break;
            }
            for groups in merged(taken) {
                self.add(groups);
            }
            self.flush();
        }
        let dropped = self.shared.queue.dropped();
        if dropped > 0 {
            self.shared.problems.report(Problem::Overflow, || {
                format!(
                    "rows come faster than they can be written: {dropped} were dropped so far, and stats() counts on. \
                     Journal fewer columns, or without texts"
                )
            });
        }
    }

    /// Adds the rows of complete groups to the table.
    fn add(&mut self, complete: CompleteGroups) {
        let CompleteGroups { batch, groups, payload } = complete;
        let size = batch.group_size().max(1);
        let mut samples_at_once = SAMPLES_AT_ONCE;
        if !self.texts.is_empty() {
            samples_at_once = (BYTES_AT_ONCE / self.shared.text_bytes().max(1)).clamp(1, SAMPLES_AT_ONCE);
        }
        for groups in groups.chunks((samples_at_once / size).max(1)) {
            let texts = self.read(payload.as_ref(), &samples_of(groups, size));
            let mut at = 0;
            for run in groups.chunk_by(|group, next| *next == group + 1) {
                self.rows.add(&self.constants, &batch, run[0]..run[0] + run.len(), &texts, at);
                at += run.len() * size;
                if self.rows.is_full() {
                    self.flush();
                }
            }
        }
    }

    /// Reads the texts of samples in the kinds of the current part. Begins a new part if a column
    /// changes from text to JSON.
    fn read(&mut self, payload: Option<&SharedPayload>, samples: &[u32]) -> Vec<TextColumn> {
        if self.texts.is_empty() {
            return Vec::new();
        }
        let read = payload.zip(self.source.as_ref()).and_then(|(payload, source)| source.read(payload, samples));
        let mut columns = read.filter(|columns| columns.len() == self.texts.len()).unwrap_or_else(|| {
            self.shared.problems.report(Problem::Texts, || {
                "texts and columns of some rows could not be read, and stay empty there".to_owned()
            });
            vec![TextColumn::empty(samples.len()); self.texts.len()]
        });
        self.shared.measure(&columns, samples.len());
        let becomes_json =
            |((_, kind), column): (&(String, Kind), &TextColumn)| *kind == Kind::Text && column.kind == Kind::Json;
        if self.texts.iter().zip(&columns).any(becomes_json) && (self.rows.count() > 0 || self.stream.is_some()) {
            self.flush();
            self.rotate();
        }
        for ((_, kind), column) in self.texts.iter_mut().zip(&mut columns) {
            match (*kind, column.kind) {
                (Kind::Text, Kind::Json) => *kind = Kind::Json,
                (Kind::Json, Kind::Text) => column.make_json(),
                _ => {}
            }
        }
        columns
    }

    /// Writes the table to disk.
    fn flush(&mut self) {
        let rows = self.rows.count() as u64;
        if rows == 0 {
            return;
        }
        match self.append() {
            Ok(()) => {
                self.shared.rows.fetch_add(rows, Ordering::Relaxed);
            }
            Err(error) => {
                self.shared.lost.fetch_add(rows, Ordering::Relaxed);
                self.back_off(&error);
            }
        }
        if self.stream.as_ref().is_some_and(|stream| stream.bytes() >= self.rotate) {
            self.rotate();
        }
    }

    fn append(&mut self) -> io::Result<()> {
        if let Some(stream) = self.stream.take_if(|stream| stream.is_gone()) {
            // Its rows are lost. A new part is tried, since the folder may exist again.
            self.shared.rows.fetch_sub(stream.rows(), Ordering::Relaxed);
            self.shared.lost.fetch_add(stream.rows(), Ordering::Relaxed);
            let path = stream.end().path.display().to_string();
            self.shared
                .problems
                .report(Problem::Disk, || format!("{path} was removed while it was written, with its rows"));
        }
        let rows = self.rows.finish(&self.constants, &self.texts).map_err(io::Error::other)?;
        if self.retry_at.is_some_and(|until| Instant::now() < until) {
            return Err(io::Error::other("the disk took nothing"));
        }
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(self.names.folder())?;
                let schema = Schema::clone(rows.schema_ref()).with_metadata(metadata(&self.texts, &self.dispatcher));
                Stream::create(&mut self.names, &schema)?
            }
        };
        let before = stream.bytes();
        let appended = stream.append(&rows);
        if appended.is_ok() {
            self.shared.bytes.fetch_add(stream.bytes() - before, Ordering::Relaxed);
            self.retry_at = None;
            self.stream = Some(stream);
        } else {
            // The next reader or writer recovers its complete messages.
            let left = stream.end();
            if left.file.metadata().is_ok_and(|file| file.len() == 0) {
                let _ = fs::remove_file(&left.path);
            }
        }
        appended
    }

    /// Drops rows for a while after a failed write.
    fn back_off(&mut self, error: &io::Error) {
        let now = Instant::now();
        if self.retry_at.is_none_or(|until| until <= now) {
            self.retry_at = Some(now + TRY_AGAIN);
        }
        self.shared.problems.report(Problem::Disk, || {
            format!("{error}. Rows that it can't take are dropped, and stats() counts them; training goes on")
        });
    }

    /// Ends the current part.
    fn rotate(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.finished.push_back(stream.end());
        }
        self.texts.iter_mut().for_each(|(_, kind)| *kind = Kind::Text);
    }

    /// Returns whether any stream is to become a Parquet file.
    fn converts(&self) -> bool {
        self.conversion.is_some() || !self.finished.is_empty() || !self.others.is_empty()
    }

    /// Does the next step of a conversion. Returns whether there is more to do.
    fn convert(&mut self) -> bool {
        if self.conversion.is_none() {
            let (path, conversion) = match self.finished.pop_front() {
                Some(stream) => (stream.path.clone(), Conversion::start(stream)),
                None => {
                    let Some(path) = self.others.pop_front() else { return false };
                    let conversion = Conversion::of_abandoned(&path);
                    (path, conversion)
                }
            };
            match conversion {
                Ok(conversion) => self.conversion = conversion,
                Err(error) => self.report_unconverted(&path.display().to_string(), &error),
            }
        }
        if let Some(conversion) = &mut self.conversion {
            match conversion.step() {
                Ok(None) => return true,
                Ok(Some(converted)) => {
                    if converted.cut > 0 {
                        self.shared.problems.report(Problem::Recovery, || {
                            let bytes = converted.cut;
                            format!("a part of a run that was killed ends within a message: its last {bytes} bytes were dropped")
                        });
                    }
                }
                Err(error) => self.report_unconverted("a part", &error),
            }
            self.conversion = None;
        }
        self.converts()
    }

    /// Reports a stream that stays as it is until the next reader or writer of the folder.
    fn report_unconverted(&self, what: &str, error: &io::Error) {
        self.shared.problems.report(Problem::Conversion, || {
            format!(
                "{what} could not be made a Parquet file ({error}); its rows are in the stream, for the next reader"
            )
        });
    }
}

/// Merges neighbours of the same batch, so that their texts are read together.
fn merged(taken: Vec<CompleteGroups>) -> Vec<CompleteGroups> {
    let mut all: Vec<CompleteGroups> = Vec::new();
    for groups in taken {
        match all.last_mut().filter(|last| Arc::ptr_eq(&last.batch, &groups.batch)) {
            Some(last) => last.groups.extend(groups.groups),
            None => all.push(groups),
        }
    }
    all
}
