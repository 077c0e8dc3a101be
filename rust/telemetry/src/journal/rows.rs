//! Rows out of the cells of complete groups: sample by sample, function by function.
//!
//! Rows gather in a table until it is full, and leave it as a record batch; the names that repeat
//! in all rows (run, functions, statuses) are dictionaries made once.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{Float32Builder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Float32Array, Float64Array, Int32Array, RecordBatch, StringArray,
    TimestampMicrosecondArray, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_schema::{ArrowError, SchemaRef};
use guerdon_core::batch::Batch;
use guerdon_core::clock::seconds;
use guerdon_core::outcome::{Note, Status, Times};
use guerdon_core::report::Usage;

use crate::journal::extra::extras;
use crate::journal::texts::TextColumn;

/// Rows of a full table; one is also full by its bytes of text.
const MOST_ROWS: usize = 1 << 16;
const MOST_BYTES: usize = 32 << 20;
/// Longest part of a reason and of a traceback: the traceback's end says what happened.
const LONGEST_REASON: usize = 4 << 10;
const LONGEST_TRACEBACK: usize = 64 << 10;
/// Longest text: more than any completion has, and few enough for a column of 32-bit offsets.
const LONGEST_TEXT: usize = 256 << 20;

/// Makes a reason and a traceback of a note, as the package shows them.
pub(crate) type Describe = fn(Note) -> (String, Option<String>);

/// One function, as rows name it.
#[derive(Clone, Debug)]
pub struct FunctionName {
    pub name: String,
    pub version: String,
    pub weight: f32,
}

/// Values that are the same in all rows of a dispatcher.
pub(crate) struct Constants {
    pub rank: i32,
    pub functions: Vec<FunctionName>,
    pub describe: Describe,
    /// The number in front of a batch's own.
    pub first_batch: u64,
    /// Microseconds since 1970 when the engine's clock showed zero.
    pub epoch_us: i64,
    run: ArrayRef,
    names: ArrayRef,
    statuses: ArrayRef,
}

impl Constants {
    pub(crate) fn new(
        run: &str,
        rank: i32,
        functions: Vec<FunctionName>,
        describe: Describe,
        first_batch: u64,
        epoch_us: i64,
    ) -> Self {
        let names = functions.iter().map(|function| function.name.as_str()).collect::<Vec<_>>();
        let (run, names) = (Arc::new(StringArray::from(vec![run])), Arc::new(StringArray::from(names)));
        let statuses = Arc::new(StringArray::from(Status::WORDS.to_vec()));
        Self { rank, functions, describe, first_batch, epoch_us, run, names, statuses }
    }
}

/// Rows that are not written yet.
pub(crate) struct Rows {
    constants: Arc<Constants>,
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
    pub(crate) fn new(constants: Arc<Constants>, texts: usize) -> Self {
        Self {
            constants,
            count: 0,
            bytes: 0,
            batch: Vec::new(),
            step: Int64Builder::new(),
            group: Vec::new(),
            sample: Vec::new(),
            function: Vec::new(),
            version: StringBuilder::new(),
            weight: Vec::new(),
            value: Float64Builder::new(),
            reward: Float32Builder::new(),
            status: Vec::new(),
            reason: StringBuilder::new(),
            traceback: StringBuilder::new(),
            submitted: Vec::new(),
            queue_s: Vec::new(),
            run_s: Vec::new(),
            attempts: Vec::new(),
            prompt_tokens: Int64Builder::new(),
            completion_tokens: Int64Builder::new(),
            cost: Float64Builder::new(),
            answer: StringBuilder::new(),
            extra: StringBuilder::new(),
            texts: (0..texts).map(|_| StringBuilder::new()).collect(),
        }
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.count >= MOST_ROWS || self.bytes >= MOST_BYTES
    }

    /// Adds the rows of complete groups that follow each other. `texts` are the columns of all
    /// samples that were read together, of which theirs begin at `at`.
    pub(crate) fn add(&mut self, batch: &Batch, groups: Range<usize>, texts: &[TextColumn], at: usize) {
        let size = batch.group_size().max(1);
        let samples = groups.start * size..groups.end * size;
        let mut notes = batch.notes_in(samples.clone());
        let functions = 0..batch.functions().len().min(self.constants.functions.len());
        let mut extras: Vec<_> = functions.clone().map(|function| extras(batch, function, &samples)).collect();
        let usage: Vec<_> = functions.clone().map(|function| batch.usage_in(function, samples.clone())).collect();
        let (number, step) = (self.constants.first_batch + batch.number(), batch.step().map(signed));
        for (place, sample) in samples.clone().enumerate() {
            for function in functions.clone() {
                let Some(cell) = batch.cell(sample, function) else { continue };
                let (shown, _) = batch.shown(sample, function);
                let (reason, traceback) = match notes.remove(&(sample, function)) {
                    Some(note) if cell.outcome.status.is_failure() => {
                        let (reason, traceback) = (self.constants.describe)(Note::clone(&note));
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
                let name = &self.constants.functions[function];
                self.version.append_value(&name.version);
                self.weight.push(name.weight);
                let ok = cell.outcome.status == Status::Ok;
                self.value.append_option(ok.then_some(cell.outcome.value));
                self.reward.append_option(Some(shown).filter(|shown| !shown.is_nan()));
                self.status.push(cell.outcome.status as i32);
                let reason = reason.as_deref().map(|reason| head(reason, LONGEST_REASON));
                let traceback = traceback.as_deref().map(|traceback| tail(traceback, LONGEST_TRACEBACK));
                self.bytes += reason.map_or(0, str::len) + traceback.map_or(0, str::len);
                self.reason.append_option(reason);
                self.traceback.append_option(traceback);
                self.add_times(batch, sample, function, cell.outcome.times);
                self.attempts.push(cell.attempts);
                self.add_usage(usage[function].get(&sample).copied());
                let extra = extras[function].remove(&sample).unwrap_or_default();
                self.add_text(Column::Answer, extra.answer.as_deref());
                let fields = (!extra.fields.is_empty()).then(|| serde_json::Value::Object(extra.fields).to_string());
                self.add_text(Column::Extra, fields.as_deref());
                for (number, column) in texts.iter().enumerate() {
                    self.add_text(Column::Text(number), column.values.get(at + place).and_then(Option::as_deref));
                }
                self.count += 1;
            }
        }
    }

    fn add_times(&mut self, batch: &Batch, sample: usize, function: usize, times: Times) {
        let span = batch.functions()[function].span(batch.samples(), batch.group_size()).max(1);
        let ready_ns = batch.ready_ns(sample / span * span, function);
        self.submitted.push(self.constants.epoch_us.saturating_add(signed(ready_ns / 1000)));
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

    fn add_text(&mut self, column: Column, text: Option<&str>) {
        let text = text.filter(|text| text.len() <= LONGEST_TEXT);
        self.bytes += text.map_or(0, str::len);
        match column {
            Column::Answer => self.answer.append_option(text),
            Column::Extra => self.extra.append_option(text),
            Column::Text(number) => self.texts[number].append_option(text),
        }
    }

    /// The rows as a record batch, leaving none; `None` without rows.
    pub(crate) fn finish(&mut self, schema: &SchemaRef) -> Result<Option<RecordBatch>, ArrowError> {
        let texts = self.texts.len();
        let rows = std::mem::replace(self, Self::new(self.constants.clone(), texts));
        if rows.count == 0 {
            return Ok(None);
        }
        let constants = rows.constants;
        let named = |keys: Vec<i32>, names: &ArrayRef| {
            DictionaryArray::<Int32Type>::try_new(Int32Array::from(keys), names.clone())
                .map(|array| Arc::new(array) as ArrayRef)
        };
        let Rows { mut step, mut version, mut value, mut reward, mut reason, mut traceback, .. } = rows;
        let Rows { mut prompt_tokens, mut completion_tokens, mut cost, mut answer, mut extra, .. } = rows;
        let mut columns: Vec<ArrayRef> = vec![
            named(vec![0; rows.count], &constants.run)?,
            Arc::new(UInt64Array::from(rows.batch)),
            Arc::new(step.finish()),
            Arc::new(Int32Array::from(vec![constants.rank; rows.count])),
            Arc::new(UInt32Array::from(rows.group)),
            Arc::new(UInt32Array::from(rows.sample)),
            named(rows.function, &constants.names)?,
            Arc::new(version.finish()),
            Arc::new(Float32Array::from(rows.weight)),
            Arc::new(value.finish()),
            Arc::new(reward.finish()),
            named(rows.status, &constants.statuses)?,
            Arc::new(reason.finish()),
            Arc::new(traceback.finish()),
            Arc::new(TimestampMicrosecondArray::from(rows.submitted).with_timezone("UTC")),
            Arc::new(Float64Array::from(rows.queue_s)),
            Arc::new(Float64Array::from(rows.run_s)),
            Arc::new(UInt16Array::from(rows.attempts)),
            Arc::new(prompt_tokens.finish()),
            Arc::new(completion_tokens.finish()),
            Arc::new(cost.finish()),
            Arc::new(answer.finish()),
            Arc::new(extra.finish()),
        ];
        columns.extend(rows.texts.into_iter().map(|mut text| Arc::new(text.finish()) as ArrayRef));
        RecordBatch::try_new(schema.clone(), columns).map(Some)
    }
}

/// Column of a text.
#[derive(Clone, Copy)]
enum Column {
    Answer,
    Extra,
    Text(usize),
}

fn head(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn tail(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}

/// The samples of these groups, in the order in which their rows come.
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
