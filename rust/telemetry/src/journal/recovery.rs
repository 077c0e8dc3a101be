//! Recovery: the next reader or writer of a folder makes Parquet files of streams whose writers
//! died.
//!
//! A locked stream is left alone: its writer lives, or another process converts it.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::journal::conversion::Conversion;
use crate::journal::part::is_stream;

/// Result of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Number of new Parquet files, and of the rows in them.
    pub parts: u64,
    pub rows: u64,
    /// Number of streams that end within a message, and the bytes of these messages.
    pub cut: u64,
    pub cut_bytes: u64,
    /// Streams that stay as they are, with the reasons; without those of living writers.
    pub left: Vec<(PathBuf, String)>,
}

/// Returns the streams in a folder, also those that are being written.
pub(crate) fn streams(folder: &Path) -> io::Result<VecDeque<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    // Opening a pipe would wait for its other end.
    paths.retain(|path| is_stream(path) && path.is_file());
    paths.sort();
    Ok(paths.into())
}

/// Makes Parquet files of the streams in a folder whose writers died.
pub fn recover(folder: &Path) -> io::Result<Recovery> {
    let mut recovered = Recovery::default();
    for path in streams(folder)? {
        let converted = Conversion::of_abandoned(&path).and_then(|conversion| {
            let Some(mut conversion) = conversion else { return Ok(None) };
            loop {
                if let Some(converted) = conversion.step()? {
                    return Ok(Some(converted));
                }
            }
        });
        match converted {
            Ok(None) => {}
            Ok(Some(converted)) => {
                recovered.parts += u64::from(converted.rows > 0);
                recovered.rows += converted.rows;
                recovered.cut += u64::from(converted.cut > 0);
                recovered.cut_bytes += converted.cut;
            }
            Err(error) => recovered.left.push((path, error.to_string())),
        }
    }
    Ok(recovered)
}
