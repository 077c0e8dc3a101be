//! Rows of the cells of complete groups: sample by sample, function by function.
//!
//! A table collects rows until it is full, and becomes a record batch. Run, functions and statuses
//! are dictionaries that are made once.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow_array::builder::{Float32Builder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Float32Array, Float64Array, Int32Array, RecordBatch, StringArray,
    TimestampMicrosecondArray, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_schema::ArrowError;
use guerdon_core::batch::Batch;
use guerdon_core::clock::seconds;
use guerdon_core::outcome::{Note, Status, Times};
use guerdon_core::report::Usage;

use crate::journal::config::{FunctionName, JournalConfig, JournalSources};
use crate::journal::extra::extras;
use crate::journal::texts::{Kind, TextColumn};

/// Bits for the number of a batch of one engine: more than any engine needs.
const BATCH_BITS: u32 = 24;
/// Rows of a full table, and its bytes of text.
const MOST_ROWS: usize = 1 << 16;
const MOST_BYTES: usize = 32 << 20;
/// Bytes that are kept of a reason, from its start, and of a traceback, from its end.
const LONGEST_REASON: usize = 4 << 10;
const LONGEST_TRACEBACK: usize = 64 << 10;
/// Bytes of the longest text: more than any completion has, and within 32-bit offsets.
const LONGEST_TEXT: usize = 256 << 20;

/// Values that are the same in all rows of a dispatcher.
pub(crate) struct Constants {
    rank: i32,
    functions: Vec<FunctionName>,
    describe: fn(Note) -> (String, Option<String>),
    /// Added to the number of each batch.
    first_batch: u64,
    /// Microseconds since 1970 when the engine's clock showed zero.
    epoch_us: i64,
    run: ArrayRef,
    names: ArrayRef,
    statuses: ArrayRef,
}

impl Constants {
    pub(crate) fn new(config: &JournalConfig, sources: &JournalSources) -> Self {
        let names = config.functions.iter().map(|function| function.name.as_str()).collect::<Vec<_>>();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        Self {
            rank: config.rank,
            functions: config.functions.clone(),
            describe: sources.describe,
            first_batch: first_batch(now),
            epoch_us: unix_us - i64::try_from(sources.clock.now_ns() / 1000).unwrap_or_default(),
            run: Arc::new(StringArray::from(vec![config.run.as_str()])),
            names: Arc::new(StringArray::from(names)),
            statuses: Arc::new(StringArray::from(Status::WORDS.to_vec())),
        }
    }
}

/// Returns a first number for an engine's batches, which differs between the engines of a rank:
/// within a process by the count, and after a restart by the time.
fn first_batch(now: Duration) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let seconds = now.as_secs() & ((1 << 28) - 1); // with `BATCH_BITS` exact in a float
    let next = |last: u64| Some(seconds.max(last + 1));
    let before = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
    seconds.max(before + 1) << BATCH_BITS
}

/// The table: rows that are not written yet.
#[derive(Default)]
pub(crate) struct Rows {
    count: usize,
    bytes: usize,
    batch: Vec<u64>,
    step: Int64Builder,
    group: Vec<u32>,
    sample: Vec<u32>,
    function: Vec<i32>,
    version: StringBuilder,
    weight: Vec<f32>,
    value: Float64Builder,
    reward: Float32Builder,
    status: Vec<i32>,
    reason: StringBuilder,
    traceback: StringBuilder,
    submitted: Vec<i64>,
    queue_s: Vec<f64>,
    run_s: Vec<f64>,
    attempts: Vec<u16>,
    prompt_tokens: Int64Builder,
    completion_tokens: Int64Builder,
    cost: Float64Builder,
    answer: StringBuilder,
    extra: StringBuilder,
    texts: Vec<StringBuilder>,
}

#[expect(clippy::cast_possible_wrap, reason = "counts of tokens stay below 2^63")]
const fn signed(count: u64) -> i64 {
    count as i64
}

impl Rows {
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.count >= MOST_ROWS || self.bytes >= MOST_BYTES
    }

    /// Adds the rows of consecutive complete groups. Their texts begin at `at` in the columns
    /// `texts`.
    pub(crate) fn add(
        &mut self,
        constants: &Constants,
        batch: &Batch,
        groups: Range<usize>,
        texts: &[TextColumn],
        at: usize,
    ) {
        self.texts.resize_with(texts.len(), StringBuilder::new);
        let size = batch.group_size().max(1);
        let samples = groups.start * size..groups.end * size;
        let mut notes = batch.notes_in(samples.clone());
        let functions = 0..batch.functions().len().min(constants.functions.len());
        let mut extras: Vec<_> = functions.clone().map(|function| extras(batch, function, &samples)).collect();
        let usage: Vec<_> = functions.clone().map(|function| batch.usage_in(function, samples.clone())).collect();
        let (number, step) = (constants.first_batch + batch.number(), batch.step().map(signed));
        for (place, sample) in samples.clone().enumerate() {
            for function in functions.clone() {
                let Some(cell) = batch.cell(sample, function) else { continue };
                let (shown, _) = batch.shown(sample, function);
                let (reason, traceback) = match notes.remove(&(sample, function)) {
                    Some(note) if cell.outcome.status.is_failure() => {
                        let (reason, traceback) = (constants.describe)(Note::clone(&note));
                        (Some(reason), traceback)
                    }
                    _ => (None, None),
                };
                self.batch.push(number);
                self.step.append_option(step);
                self.group.push((sample / size) as u32);
                self.sample.push(sample as u32);
                #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "few functions")]
                self.function.push(function as i32);
                let name = &constants.functions[function];
                self.version.append_value(&name.version);
                self.weight.push(name.weight);
                let ok = cell.outcome.status == Status::Ok;
                self.value.append_option(ok.then_some(cell.outcome.value));
                self.reward.append_option(Some(shown).filter(|shown| !shown.is_nan()));
                self.status.push(cell.outcome.status as i32);
                let reason = reason.as_deref().map(|reason| head(reason, LONGEST_REASON));
                let traceback = traceback.as_deref().map(|traceback| tail(traceback, LONGEST_TRACEBACK));
                add_text(&mut self.reason, &mut self.bytes, reason);
                add_text(&mut self.traceback, &mut self.bytes, traceback);
                self.add_times(constants, batch, sample, function, cell.outcome.times);
                self.attempts.push(cell.attempts);
                self.add_usage(usage[function].get(&sample).copied());
                let extra = extras[function].remove(&sample).unwrap_or_default();
                add_text(&mut self.answer, &mut self.bytes, extra.answer.as_deref());
                let fields = (!extra.fields.is_empty()).then(|| serde_json::Value::Object(extra.fields).to_string());
                add_text(&mut self.extra, &mut self.bytes, fields.as_deref());
                for (builder, column) in self.texts.iter_mut().zip(texts) {
                    let text = column.values.get(at + place).and_then(Option::as_deref);
                    add_text(builder, &mut self.bytes, text);
                }
                self.count += 1;
            }
        }
    }

    fn add_times(&mut self, constants: &Constants, batch: &Batch, sample: usize, function: usize, times: Times) {
        let span = batch.functions()[function].span(batch.samples(), batch.group_size()).max(1);
        let ready_ns = batch.ready_ns(sample / span * span, function);
        self.submitted.push(constants.epoch_us.saturating_add(signed(ready_ns / 1000)));
        self.queue_s.push(seconds(times.started_ns.saturating_sub(ready_ns)));
        self.run_s.push(seconds(times.run_ns));
    }

    fn add_usage(&mut self, usage: Option<Usage>) {
        let known = usage.filter(|usage| usage.requests > usage.unknown);
        self.prompt_tokens.append_option(known.map(|usage| signed(usage.prompt_tokens)));
        self.completion_tokens.append_option(known.map(|usage| signed(usage.completion_tokens)));
        // The cost is null if there is no price.
        self.cost.append_option(usage.map(|usage| usage.cost).filter(|cost| *cost > 0.0));
    }

    /// Removes the rows and returns them as a record batch, with the columns of docs/journal.md:
    /// each with its name, its values and whether it has nulls.
    pub(crate) fn finish(
        &mut self,
        constants: &Constants,
        texts: &[(String, Kind)],
    ) -> Result<RecordBatch, ArrowError> {
        fn array(array: impl Array + 'static) -> ArrayRef {
            Arc::new(array)
        }
        let named = |keys: Vec<i32>, names: &ArrayRef| {
            DictionaryArray::<Int32Type>::try_new(Int32Array::from(keys), names.clone()).map(array)
        };
        let mut rows = std::mem::take(self);
        let fixed = [
            ("run", named(vec![0; rows.count], &constants.run)?, false),
            ("batch", array(UInt64Array::from(rows.batch)), false),
            ("step", array(rows.step.finish()), true),
            ("rank", array(Int32Array::from(vec![constants.rank; rows.count])), false),
            ("group", array(UInt32Array::from(rows.group)), false),
            ("sample", array(UInt32Array::from(rows.sample)), false),
            ("function", named(rows.function, &constants.names)?, false),
            ("version", array(rows.version.finish()), false),
            ("weight", array(Float32Array::from(rows.weight)), false),
            ("value", array(rows.value.finish()), true),
            ("reward", array(rows.reward.finish()), true),
            ("status", named(rows.status, &constants.statuses)?, false),
            ("reason", array(rows.reason.finish()), true),
            ("traceback", array(rows.traceback.finish()), true),
            ("submitted", array(TimestampMicrosecondArray::from(rows.submitted).with_timezone("UTC")), false),
            ("queue_s", array(Float64Array::from(rows.queue_s)), false),
            ("run_s", array(Float64Array::from(rows.run_s)), false),
            ("attempts", array(UInt16Array::from(rows.attempts)), false),
            ("prompt_tokens", array(rows.prompt_tokens.finish()), true),
            ("completion_tokens", array(rows.completion_tokens.finish()), true),
            ("cost", array(rows.cost.finish()), true),
            ("answer", array(rows.answer.finish()), true),
            ("extra", array(rows.extra.finish()), true),
        ];
        let chosen = texts.iter().zip(rows.texts).map(|((name, _), mut text)| (&**name, array(text.finish()), true));
        RecordBatch::try_from_iter_with_nullable(fixed.into_iter().chain(chosen))
    }
}

/// Appends a text to a column, and adds its bytes to the sum.
fn add_text(column: &mut StringBuilder, bytes: &mut usize, text: Option<&str>) {
    let text = text.filter(|text| text.len() <= LONGEST_TEXT);
    *bytes += text.map_or(0, str::len);
    column.append_option(text);
}

fn head(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn tail(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}

/// Returns the samples of these groups, in the order of their rows.
pub(crate) fn samples_of(groups: &[usize], size: usize) -> Vec<u32> {
    groups.iter().flat_map(|group| group * size..(group + 1) * size).map(|sample| sample as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_reasons_keep_their_beginning_and_tracebacks_their_end() {
        assert_eq!((head("äöü", 3), tail("äöü", 3)), ("ä", "ü"));
        assert_eq!((head("abc", 9), tail("abc", 9)), ("abc", "abc"));
        assert_eq!(samples_of(&[2, 0], 3), [6, 7, 8, 0, 1, 2]);
    }
}
