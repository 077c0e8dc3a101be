//! The metadata of a journal's parts, and the properties of their Parquet files.

use std::collections::{BTreeMap, HashMap};

use arrow_schema::Schema;
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
pub(crate) const ROW_GROUP_ROWS: usize = 1 << 17;
/// Bytes of a row group, with long texts.
pub(crate) const ROW_GROUP_BYTES: usize = 64 << 20;
/// The fastest level: texts shrink to a quarter, and others to little less at ten times the cost.
const ZSTD_LEVEL: i32 = 1;

/// The metadata of a part with texts and chosen columns of these names and kinds.
pub(crate) fn metadata(texts: &[(String, Kind)], dispatcher: &str) -> HashMap<String, String> {
    // The names of chosen columns are the user's here.
    let kinds = texts.iter().map(|(name, kind)| (name.strip_prefix("column_").unwrap_or(name), kind));
    let kinds: BTreeMap<_, _> = kinds.collect();
    HashMap::from([
        (SCHEMA_KEY.to_owned(), SCHEMA.to_owned()),
        (KINDS_KEY.to_owned(), serde_json::json!(kinds).to_string()),
        (DISPATCHER_KEY.to_owned(), dispatcher.to_owned()),
    ])
}

/// Returns the properties of the Parquet file for a stream with this schema.
pub(crate) fn properties(schema: &Schema) -> WriterProperties {
    let metadata = schema.metadata();
    let kept = [SCHEMA_KEY, KINDS_KEY, DISPATCHER_KEY]
        .into_iter()
        .filter_map(|key| Some(KeyValue::new(key.to_owned(), metadata.get(key)?.clone())));
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).unwrap_or_default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_key_value_metadata(Some(kept.collect()));
    // No two are alike: a dictionary of them is work for nothing.
    for column in ["queue_s", "run_s"] {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(column), false);
    }
    properties.build()
}
