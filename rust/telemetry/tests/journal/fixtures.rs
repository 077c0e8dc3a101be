//! A folder, an engine whose functions answer by the number of a sample, and how parts are read.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, UInt32Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef, UnionMode};
use guerdon_core::clock::Clock;
use guerdon_core::function::{Function, Shape};
use guerdon_core::lane::Lane;
use guerdon_core::outcome::{Cell, FailureKind, Note};
use guerdon_core::scheduler::Scheduler;
use guerdon_telemetry::journal::{FunctionName, Journal, JournalConfig, JournalSources, recover};
use guerdon_testkit::{Act, FakeLane, Room, TempFolder, done, function, spec};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// An empty folder, which goes with the test.
pub fn empty_folder() -> TempFolder {
    TempFolder::create().unwrap()
}

pub fn files(folder: &TempFolder, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|one| one == extension)).collect();
    files.sort();
    files
}

/// What each part says of its dispatcher.
const DISPATCHER: &str = r#"{"incomplete":"sum"}"#;

fn describe(note: Note) -> (String, Option<String>) {
    (note.reason, note.traceback.map(|traceback| traceback.text().to_owned()))
}

pub fn config(folder: &Path, functions: &[&str], texts: &[&str], rotate: u64) -> JournalConfig {
    let name = |name: &&str| FunctionName { name: (*name).to_owned(), version: "v".to_owned(), weight: 0.5 };
    JournalConfig {
        folder: folder.to_owned(),
        run: "a run".to_owned(),
        rank: 3,
        functions: functions.iter().map(name).collect(),
        texts: texts.iter().map(|text| (*text).to_owned()).collect(),
        dispatcher: DISPATCHER.to_owned(),
        rotate,
    }
}

pub fn sources() -> JournalSources {
    JournalSources { describe, on_trouble: Box::new(|_| ()), clock: Clock::start(), texts: None }
}

pub fn parts(folder: &TempFolder) -> Vec<(RecordBatch, String)> {
    let read = |path: PathBuf| {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
        let metadata = reader.metadata().file_metadata().key_value_metadata().unwrap().clone();
        let value = |key: &str| metadata.iter().find(|one| one.key == key).and_then(|one| one.value.clone()).unwrap();
        let kinds = value("guerdon.kinds");
        assert_eq!(value("guerdon.dispatcher"), DISPATCHER);
        let batches: Vec<RecordBatch> = reader.with_batch_size(1 << 20).build().unwrap().map(Result::unwrap).collect();
        assert_eq!(batches.len(), 1);
        (batches.into_iter().next().unwrap(), kinds)
    };
    files(folder, "parquet").into_iter().map(read).collect()
}

pub fn texts_of(batch: &RecordBatch, column: &str) -> Vec<Option<String>> {
    let column = batch.column_by_name(column).unwrap().as_string::<i32>();
    column.iter().map(|text| text.map(str::to_owned)).collect()
}

/// (sample, function, value, status)
pub type Row = (u32, String, Option<f64>, String);

pub fn rows(batch: &RecordBatch) -> Vec<Row> {
    let named = |name: &str| {
        let column = batch.column_by_name(name).unwrap().as_dictionary::<Int32Type>();
        let names = column.downcast_dict::<arrow_array::StringArray>().unwrap();
        names.into_iter().map(|name| name.unwrap().to_owned()).collect::<Vec<_>>()
    };
    let samples = batch.column_by_name("sample").unwrap().as_primitive::<UInt32Type>();
    let values = batch.column_by_name("value").unwrap().as_primitive::<Float64Type>();
    let (functions, statuses) = (named("function"), named("status"));
    let row = |row: usize| {
        let value = (!values.is_null(row)).then(|| values.value(row));
        (samples.value(row), functions[row].clone(), value, statuses[row].clone())
    };
    (0..batch.num_rows()).map(row).collect()
}

pub fn engine(functions: Vec<Function>) -> Scheduler {
    let script = |ask: &guerdon_testkit::Ask| {
        let after = Duration::from_micros(50);
        if ask.first % 7 == 3 {
            Act::Fail { after, failure: guerdon_testkit::failure(FailureKind::Error) }
        } else {
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let value = |sample: usize| Cell::Value(sample as f64 / 2.0);
            Act::Return { after, cells: (ask.first..ask.first + ask.samples).map(value).collect() }
        }
    };
    let lane: Arc<dyn Lane> = Arc::new(FakeLane::new(Room { places: 8, at_once: true, ..Room::default() }, script));
    Scheduler::start(&tokio::runtime::Handle::current(), Clock::start(), functions, vec![lane])
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

pub const LONG: Duration = Duration::from_secs(60);

/// Waits until so many rows are written or lost.
pub async fn all_counted(journal: &Journal, rows: u64) {
    let begun = Instant::now();
    while journal.counts().rows + journal.counts().dropped < rows {
        assert!(begun.elapsed() < LONG, "{:?}", journal.counts());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A stream of three messages with 40 rows each, as it lies while its writer lives.
pub fn stream() -> &'static [u8] {
    static STREAM: OnceLock<Vec<u8>> = OnceLock::new();
    STREAM.get_or_init(|| {
        let folder = empty_folder();
        runtime().block_on(async {
            let engine = engine(vec![function("each", Shape::Sample)]);
            let journal = Arc::new(Journal::start(config(&folder.0, &["each"], &[], 1 << 30), sources()).unwrap());
            engine.observe(vec![journal.clone()]);
            for batches in 1..=3 {
                let batch = engine.submit(spec(10, 4)).unwrap();
                assert!(done(&batch).await);
                all_counted(&journal, 40 * batches).await;
            }
            assert_eq!(recover(&folder.0).unwrap().parts, 0, "its writer lives");
            let bytes = fs::read(files(&folder, "arrows").pop().unwrap()).unwrap();
            assert!(journal.close(LONG));
            bytes
        })
    })
}

/// A whole stream of one column with this schema of a journal, or of none.
pub fn other_stream(version: Option<&str>) -> Vec<u8> {
    let values = arrow_array::Float64Array::from(vec![1.0, 2.0]);
    let rows = RecordBatch::try_new(schema_of(version, DataType::Float64), vec![Arc::new(values)]).unwrap();
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &rows.schema()).unwrap();
    writer.write(&rows).unwrap();
    writer.into_inner().unwrap()
}

/// A stream of a journal without rows, whose column has a type that Parquet lacks.
pub fn stream_of_unions() -> Vec<u8> {
    let kinds = [(0, Arc::new(Field::new("number", DataType::Float64, true)))].into_iter().collect();
    let schema = schema_of(Some("1"), DataType::Union(kinds, UnionMode::Sparse));
    arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &schema).unwrap().into_inner().unwrap()
}

fn schema_of(version: Option<&str>, kind: DataType) -> SchemaRef {
    let metadata: std::collections::HashMap<_, _> =
        version.map(|version| ("guerdon.schema".to_owned(), version.to_owned())).into_iter().collect();
    Arc::new(Schema::new_with_metadata(vec![Field::new("value", kind, true)], metadata))
}
