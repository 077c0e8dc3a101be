//! A Parquet file of record batches, by the library's writers of columns.
//!
//! Its writer of Arrow arrays would add 1.5 MB of code, for kinds of arrays that a journal lacks.

use std::borrow::Cow;
use std::fs::File;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types as arrow;
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, RecordBatch, StringArray};
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use parquet::basic::{LogicalType, Repetition, TimeUnit as ParquetTimeUnit, Type as PhysicalType};
use parquet::data_type::{ByteArray, ByteArrayType, DataType as Physical, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use crate::journal::layout::{ROW_GROUP_BYTES, ROW_GROUP_ROWS, properties};

pub(crate) struct ParquetFile {
    file: SerializedFileWriter<File>,
    /// Rows of the next row group.
    waiting: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
}

impl ParquetFile {
    pub(crate) fn new(file: File, schema: &Schema) -> Result<Self> {
        let columns = schema.fields().iter().map(|field| column_type(field).map(Arc::new)).collect::<Result<_>>()?;
        let root = Type::group_type_builder("schema").with_fields(columns).build()?;
        let mut file = SerializedFileWriter::new(file, Arc::new(root), Arc::new(properties(schema)))?;
        file.append_key_value_metadata(KeyValue::new("ARROW:schema".to_owned(), encoded(schema)));
        Ok(Self { file, waiting: Vec::new(), rows: 0, bytes: 0 })
    }

    pub(crate) fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        let mut start = 0;
        while start < rows.num_rows() {
            let part = rows.slice(start, (ROW_GROUP_ROWS - self.rows).min(rows.num_rows() - start));
            start += part.num_rows();
            self.rows += part.num_rows();
            for column in part.columns() {
                self.bytes += column.to_data().get_slice_memory_size().unwrap_or_default();
            }
            self.waiting.push(part);
            if self.rows >= ROW_GROUP_ROWS || self.bytes >= ROW_GROUP_BYTES {
                self.write_group()?;
            }
        }
        Ok(())
    }

    /// Writes the last rows, and returns the complete file.
    pub(crate) fn finish(&mut self) -> Result<&File> {
        if self.rows > 0 {
            self.write_group()?;
        }
        self.file.finish()?;
        Ok(self.file.inner())
    }

    fn write_group(&mut self) -> Result<()> {
        let batches = std::mem::take(&mut self.waiting);
        (self.rows, self.bytes) = (0, 0);
        let mut group = self.file.next_row_group()?;
        let mut index = 0;
        while let Some(mut column) = group.next_column()? {
            for batch in &batches {
                write_column(&mut column, batch.schema_ref().field(index), batch.column(index))?;
            }
            column.close()?;
            index += 1;
        }
        group.close()?;
        Ok(())
    }
}

/// The schema with its dictionaries and time zones, for readers of Arrow.
fn encoded(schema: &Schema) -> String {
    let mut tracker = DictionaryTracker::new(true);
    let options = IpcWriteOptions::default();
    let message = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(schema, &mut tracker, &options);
    let size = u32::try_from(message.ipc_message.len()).unwrap_or(u32::MAX);
    BASE64_STANDARD.encode([&[255; 4], &size.to_le_bytes()[..], &message.ipc_message].concat())
}

fn column_type(field: &Field) -> Result<Type> {
    let unsigned = |bit_width| Some(LogicalType::integer(bit_width, false));
    let (physical, logical) = match field.data_type() {
        DataType::UInt16 => (PhysicalType::INT32, unsigned(16)),
        DataType::UInt32 => (PhysicalType::INT32, unsigned(32)),
        DataType::UInt64 => (PhysicalType::INT64, unsigned(64)),
        DataType::Int32 => (PhysicalType::INT32, None),
        DataType::Int64 => (PhysicalType::INT64, None),
        DataType::Float32 => (PhysicalType::FLOAT, None),
        DataType::Float64 => (PhysicalType::DOUBLE, None),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            (PhysicalType::INT64, Some(LogicalType::timestamp(zone.is_some(), ParquetTimeUnit::MICROS)))
        }
        DataType::Utf8 | DataType::Dictionary(..) => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        _ => return Err(unknown(field)),
    };
    let repetition = if field.is_nullable() { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    Type::primitive_type_builder(field.name(), physical).with_repetition(repetition).with_logical_type(logical).build()
}

fn unknown(field: &Field) -> ParquetError {
    ParquetError::General(format!("the column {:?} has a type that no journal has", field.name()))
}

#[expect(clippy::cast_possible_wrap, reason = "Parquet keeps unsigned numbers as signed ones of the same bits")]
fn write_column(column: &mut SerializedColumnWriter<'_>, field: &Field, array: &ArrayRef) -> Result<()> {
    let levels = || (0..array.len()).map(|row| i16::from(array.is_valid(row))).collect();
    let levels: Option<Vec<i16>> = field.is_nullable().then(levels);
    let mut sink = Sink { column, levels: levels.as_deref() };
    match field.data_type() {
        DataType::UInt16 => sink.write::<Int32Type>(&converted::<arrow::UInt16Type, _>(array, i32::from)),
        DataType::UInt32 => sink.write::<Int32Type>(&converted::<arrow::UInt32Type, _>(array, |value| value as i32)),
        DataType::UInt64 => sink.write::<Int64Type>(&converted::<arrow::UInt64Type, _>(array, |value| value as i64)),
        DataType::Int32 => sink.write::<Int32Type>(&values::<arrow::Int32Type>(array)),
        DataType::Int64 => sink.write::<Int64Type>(&values::<arrow::Int64Type>(array)),
        DataType::Float32 => sink.write::<FloatType>(&values::<arrow::Float32Type>(array)),
        DataType::Float64 => sink.write::<DoubleType>(&values::<arrow::Float64Type>(array)),
        DataType::Timestamp(..) => sink.write::<Int64Type>(&values::<arrow::TimestampMicrosecondType>(array)),
        DataType::Utf8 => sink.write::<ByteArrayType>(&texts(array.as_string())),
        DataType::Dictionary(..) => {
            let array = array.as_dictionary::<arrow::Int32Type>();
            let names = texts(array.values().as_string());
            let keys = array.keys().values().iter();
            sink.write::<ByteArrayType>(&keys.map(|key| names[*key as usize].clone()).collect::<Vec<_>>())
        }
        _ => Err(unknown(field)),
    }
}

struct Sink<'a, 'b> {
    column: &'a mut SerializedColumnWriter<'b>,
    /// 1 for a value, 0 for a null; none in a column without nulls.
    levels: Option<&'a [i16]>,
}

impl Sink<'_, '_> {
    fn write<T: Physical>(&mut self, values: &[T::T]) -> Result<()> {
        self.column.typed::<T>().write_batch(values, self.levels, None).map(drop)
    }
}

/// The values of a column without its nulls.
fn values<T: ArrowPrimitiveType>(array: &ArrayRef) -> Cow<'_, [T::Native]> {
    let array = array.as_primitive::<T>();
    if array.null_count() == 0 { Cow::Borrowed(array.values()) } else { array.iter().flatten().collect() }
}

fn converted<T: ArrowPrimitiveType, V>(array: &ArrayRef, convert: impl Fn(T::Native) -> V) -> Vec<V> {
    values::<T>(array).iter().map(|value| convert(*value)).collect()
}

/// The texts of a column without its nulls; they share its bytes.
fn texts(array: &StringArray) -> Vec<ByteArray> {
    let bytes = Bytes::from_owner(array.values().clone());
    let ends = array.value_offsets().windows(2).enumerate().filter(|(row, _)| array.is_valid(*row));
    ends.map(|(_, ends)| ByteArray::from(bytes.slice(ends[0] as usize..ends[1] as usize))).collect()
}
