//! The writer's thread: takes complete groups, makes rows of them and brings them to disk.
//!
//! - Completed rows are on disk within `GATHER` and the time that it takes to write, unless texts
//!   must be read and Python lets nobody in.
//! - Between rows it goes on with parts that become Parquet files: rows go first.
//! - If the disk takes nothing, rows are dropped and counted, and it tries again after a while.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use guerdon_core::payload::SharedPayload;

use crate::journal::conversion::Conversion;
use crate::journal::layout::schema;
use crate::journal::part::{OwnedStream, PartNames, Stream};
use crate::journal::problems::Problem;
use crate::journal::recovery::streams;
use crate::journal::rows::{Constants, Rows, samples_of};
use crate::journal::shared::{CompleteGroups, WriterState};
use crate::journal::texts::{Kind, TextColumn, TextSource};

/// Time that rows gather before they are written: a message of few rows is mostly header.
const GATHER: Duration = Duration::from_millis(200);
/// Number of rows that are written at once.
const ENOUGH: usize = 1 << 14;
/// The most samples that are looked at in one go: Python's lock is soon given back, and few have
/// their texts in memory twice.
const SAMPLES_AT_ONCE: usize = 1 << 12;
const BYTES_AT_ONCE: usize = 32 << 20;
/// When a disk that took nothing is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(10);

pub(crate) struct Writer {
    shared: Arc<WriterState>,
    source: Option<Arc<dyn TextSource>>,
    names: PartNames,
    /// Names of texts and chosen columns, with their kinds in the part that is being written.
    texts: Vec<(String, Kind)>,
    dispatcher: String,
    rotate: u64,
    constants: Constants,
    rows: Rows,
    stream: Option<Stream>,
    /// Streams that are to become Parquet files, and the one that does.
    finished: VecDeque<OwnedStream>,
    /// Streams that other writers may have left. Opened one by one: there may be thousands.
    others: VecDeque<PathBuf>,
    conversion: Option<Conversion>,
    /// The disk takes nothing until then.
    rests_until: Option<Instant>,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<WriterState>,
        source: Option<Arc<dyn TextSource>>,
        names: PartNames,
        texts: Vec<String>,
        dispatcher: String,
        rotate: u64,
        constants: Constants,
    ) -> Self {
        let texts = texts.into_iter().map(|name| (name, Kind::Text)).collect();
        Self {
            shared,
            source,
            names,
            texts,
            dispatcher,
            rotate,
            constants,
            rows: Rows::default(),
            stream: None,
            finished: VecDeque::new(),
            others: VecDeque::new(),
            conversion: None,
            rests_until: None,
        }
    }

    /// Until the end of the queue, and of all parts.
    pub(crate) fn run(mut self) {
        self.shared.queue.serve();
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

    /// Lets rows come together.
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
            for groups in together(taken) {
                self.add(groups);
            }
            self.flush();
        }
        let dropped = self.shared.queue.dropped();
        if dropped > 0 {
            self.shared.problems.tell(Problem::Overflow, || {
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

    /// The texts of samples, as the part that is being written has them; a part of another kind
    /// begins where one can't be written so.
    fn read(&mut self, payload: Option<&SharedPayload>, samples: &[u32]) -> Vec<TextColumn> {
        if self.texts.is_empty() {
            return Vec::new();
        }
        let read = payload.zip(self.source.as_ref()).and_then(|(payload, source)| source.read(payload, samples));
        let mut columns = read.filter(|columns| columns.len() == self.texts.len()).unwrap_or_else(|| {
            self.shared.problems.tell(Problem::Texts, || {
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
                (Kind::Json, Kind::Text) => *column = std::mem::replace(column, TextColumn::empty(0)).into_json(),
                _ => {}
            }
        }
        columns
    }

    /// Brings the table to disk.
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
                self.rest(&error);
            }
        }
        if self.stream.as_ref().is_some_and(|stream| stream.bytes() >= self.rotate) {
            self.rotate();
        }
    }

    fn append(&mut self) -> io::Result<()> {
        if let Some(stream) = self.stream.take_if(|stream| stream.is_gone()) {
            // Its rows are lost; the folder may come back.
            self.shared.rows.fetch_sub(stream.rows(), Ordering::Relaxed);
            self.shared.lost.fetch_add(stream.rows(), Ordering::Relaxed);
            let path = stream.end().path.display().to_string();
            self.shared
                .problems
                .tell(Problem::Disk, || format!("{path} was removed while it was written, with its rows"));
        }
        let known = self.stream.as_ref().map(|stream| stream.schema().clone());
        let schema = known.unwrap_or_else(|| schema(&self.texts, &self.dispatcher));
        let batch = self.rows.finish(&self.constants, &schema).map_err(io::Error::other)?;
        if self.rests_until.is_some_and(|until| Instant::now() < until) {
            return Err(io::Error::other("the disk took nothing"));
        }
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(self.names.folder())?;
                Stream::create(&mut self.names, schema)?
            }
        };
        let before = stream.bytes();
        let appended = batch.map_or(Ok(()), |batch| stream.append(&batch));
        if appended.is_ok() {
            self.shared.bytes.fetch_add(stream.bytes() - before, Ordering::Relaxed);
            self.rests_until = None;
            self.stream = Some(stream);
        } else {
            // Complete messages in it are recovered later.
            let left = stream.end();
            if left.file.metadata().is_ok_and(|file| file.len() == 0) {
                let _ = fs::remove_file(&left.path);
            }
        }
        appended
    }

    /// Takes nothing to disk for a while.
    fn rest(&mut self, error: &io::Error) {
        let now = Instant::now();
        if self.rests_until.is_none_or(|until| until <= now) {
            self.rests_until = Some(now + TRY_AGAIN);
        }
        self.shared.problems.tell(Problem::Disk, || {
            format!("{error}. Rows that it can't take are dropped, and stats() counts them; training goes on")
        });
    }

    /// Ends the part that is being written.
    fn rotate(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.finished.push_back(stream.end());
        }
        self.texts.iter_mut().for_each(|(_, kind)| *kind = Kind::Text);
    }

    /// Returns whether something is to become a Parquet file.
    fn converts(&self) -> bool {
        self.conversion.is_some() || !self.finished.is_empty() || !self.others.is_empty()
    }

    /// Goes on with the next Parquet file; whether there is more to do.
    fn convert(&mut self) -> bool {
        if self.conversion.is_none() {
            let (path, stream) = match self.finished.pop_front() {
                Some(stream) => (stream.path.clone(), Ok(Some(stream))),
                None => {
                    let Some(path) = self.others.pop_front() else { return false };
                    let stream = OwnedStream::abandoned(&path);
                    (path, stream)
                }
            };
            match stream.and_then(|stream| stream.map_or(Ok(None), Conversion::start)) {
                Ok(conversion) => self.conversion = conversion,
                Err(error) => self.leave(&path.display().to_string(), &error),
            }
        }
        if let Some(conversion) = &mut self.conversion {
            match conversion.step() {
                Ok(None) => return true,
                Ok(Some(converted)) => {
                    if converted.cut > 0 {
                        self.shared.problems.tell(Problem::Recovery, || {
                            let bytes = converted.cut;
                            format!("a part of a run that was killed ends within a message: its last {bytes} bytes were dropped")
                        });
                    }
                }
                Err(error) => self.leave("a part", &error),
            }
            self.conversion = None;
        }
        self.converts()
    }

    /// Leaves a stream as it is, for who reads or writes the folder next.
    fn leave(&self, what: &str, error: &io::Error) {
        self.shared.problems.tell(Problem::Conversion, || {
            format!(
                "{what} could not be made a Parquet file ({error}); its rows are in the stream, for the next reader"
            )
        });
    }
}

/// Items of one batch that follow each other as one: their texts are read together.
fn together(taken: Vec<CompleteGroups>) -> Vec<CompleteGroups> {
    let mut merged: Vec<CompleteGroups> = Vec::new();
    for groups in taken {
        match merged.last_mut().filter(|last| Arc::ptr_eq(&last.batch, &groups.batch)) {
            Some(last) => last.groups.extend(groups.groups),
            None => merged.push(groups),
        }
    }
    merged
}
