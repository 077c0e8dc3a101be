//! Values of a configuration that Rust has in another form: times in seconds, paths as bytes, texts
//! that are never shown.

use std::ffi::OsString;
use std::fmt::{self, Debug, Formatter};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_bytes::ByteBuf;

/// Reads a time in seconds. A time beyond the longest `Duration` is that one.
pub fn seconds<'de, D: Deserializer<'de>>(given: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(given)?;
    if seconds.is_nan() || seconds < 0.0 {
        return Err(D::Error::custom(format!("{seconds} is not a time in seconds")));
    }
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// Reads a time in seconds, or `None`.
pub fn optional_seconds<'de, D: Deserializer<'de>>(given: D) -> Result<Option<Duration>, D::Error> {
    #[derive(Deserialize)]
    struct Seconds(#[serde(deserialize_with = "seconds")] Duration);
    Ok(Option::deserialize(given)?.map(|Seconds(time)| time))
}

/// A path, as the bytes that it has on the system.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "ByteBuf")]
pub struct RawPath(pub PathBuf);

impl From<ByteBuf> for RawPath {
    fn from(bytes: ByteBuf) -> Self {
        Self(OsString::from_vec(bytes.into_vec()).into())
    }
}

/// Reads a path.
pub fn path<'de, D: Deserializer<'de>>(given: D) -> Result<PathBuf, D::Error> {
    RawPath::deserialize(given).map(|path| path.0)
}

/// Reads a path, or `None`.
pub fn optional_path<'de, D: Deserializer<'de>>(given: D) -> Result<Option<PathBuf>, D::Error> {
    Ok(Option::deserialize(given)?.map(|RawPath(path)| path))
}

/// A text that neither `Debug` nor an error shows: a key, or the value of a header.
#[derive(Clone)]
pub struct Secret(pub String);

impl Debug for Secret {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(given: D) -> Result<Self, D::Error> {
        String::deserialize(given).map(Self).map_err(|_| D::Error::custom("expected a text (not shown)"))
    }
}
