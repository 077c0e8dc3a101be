//! Times of last use, in milliseconds since 1970, because all processes of a folder compare them.

use std::time::SystemTime;

pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
