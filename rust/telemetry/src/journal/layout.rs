//! The columns of a journal, their order and their types (docs/journal.md), and the properties of
//! its Parquet files.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use crate::journal::texts::Kind;

/// Version of the columns and their meaning: it changes when one does.
pub(crate) const SCHEMA: &str = "1";
pub(crate) const SCHEMA_KEY: &str = "guerdon.schema";
pub(crate) const KINDS_KEY: &str = "guerdon.kinds";
/// Key of the dispatcher's facts, which the rows alone lack: a JSON object.
pub(crate) const DISPATCHER_KEY: &str = "guerdon.dispatcher";

/// Rows of a row group: what a reader has in memory at a time.
const ROW_GROUP_ROWS: usize = 1 << 17;
/// Bytes of a row group, with long texts.
const ROW_GROUP_BYTES: usize = 64 << 20;
/// The fastest level: texts shrink to a quarter, and others to little less at ten times the cost.
const ZSTD_LEVEL: i32 = 1;

fn names() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// The schema of a part, of texts and chosen columns of these names and kinds.
pub(crate) fn schema(texts: &[(String, Kind)], dispatcher: &str) -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let fixed = [
        ("run", names(), false),
        ("batch", DataType::UInt64, false),
        ("step", DataType::Int64, true),
        ("rank", DataType::Int32, false),
        ("group", DataType::UInt32, false),
        ("sample", DataType::UInt32, false),
        ("function", names(), false),
        ("version", DataType::Utf8, false),
        ("weight", DataType::Float32, false),
        ("value", DataType::Float64, true),
        ("reward", DataType::Float32, true),
        ("status", names(), false),
        ("reason", DataType::Utf8, true),
        ("traceback", DataType::Utf8, true),
        ("submitted", time, false),
        ("queue_s", DataType::Float64, false),
        ("run_s", DataType::Float64, false),
        ("attempts", DataType::UInt16, false),
        ("prompt_tokens", DataType::Int64, true),
        ("completion_tokens", DataType::Int64, true),
        ("cost", DataType::Float64, true),
        ("answer", DataType::Utf8, true),
        ("extra", DataType::Utf8, true),
    ];
    let fixed = fixed.into_iter().map(|(name, kind, nullable)| Field::new(name, kind, nullable));
    let chosen = texts.iter().map(|(name, _)| Field::new(name, DataType::Utf8, true));
    let kinds: serde_json::Map<_, _> =
        texts.iter().map(|(name, kind)| (plain(name).to_owned(), kind.name().into())).collect();
    let metadata = [
        (SCHEMA_KEY, SCHEMA.to_owned()),
        (KINDS_KEY, serde_json::Value::Object(kinds).to_string()),
        (DISPATCHER_KEY, dispatcher.to_owned()),
    ];
    let metadata: HashMap<String, String> = metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    Arc::new(Schema::new_with_metadata(fixed.chain(chosen).collect::<Vec<_>>(), metadata))
}

/// The name of a text or chosen column as the user knows it.
fn plain(column: &str) -> &str {
    column.strip_prefix("column_").unwrap_or(column)
}

/// Returns the properties of the Parquet file for a stream with this schema.
pub(crate) fn properties(schema: &Schema) -> WriterProperties {
    let metadata = schema.metadata();
    let kept = [SCHEMA_KEY, KINDS_KEY, DISPATCHER_KEY]
        .into_iter()
        .filter_map(|key| Some(KeyValue::new(key.to_owned(), metadata.get(key)?.clone())));
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).unwrap_or_default()))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_key_value_metadata(Some(kept.collect()));
    // No two are alike: a dictionary of them is work for nothing.
    for column in ["queue_s", "run_s"] {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(column), false);
    }
    properties.build()
}
