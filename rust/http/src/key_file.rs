//! A file that holds an API key, which others replace while it is used: it is read again once a
//! server has refused the key.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::{HeaderName, HeaderValue};
use parking_lot::RwLock;

use crate::redaction::Redactor;

/// No key is longer.
const LONGEST: u64 = 64 << 10;

/// See the module. Shared by all endpoints of a function.
pub(crate) struct KeyFile {
    path: PathBuf,
    /// The headers that carry the key, with `{key}` where it belongs.
    headers: Vec<(HeaderName, String)>,
    /// Written by `renew`.
    current: RwLock<Arc<CurrentKey>>,
    /// Held by who reads the file: others wait for what it found.
    reading: tokio::sync::Mutex<()>,
}

/// The key as it was last read.
pub(crate) struct CurrentKey {
    key: String,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Redactors of this key and of earlier ones, which a server may still echo.
    pub redactors: Vec<Redactor>,
}

impl KeyFile {
    pub fn new(path: PathBuf, headers: Vec<(HeaderName, String)>, key: &str) -> Self {
        let current = CurrentKey { key: key.to_owned(), headers: Vec::new(), redactors: vec![Redactor::of(key)] };
        Self { path, headers, current: RwLock::new(Arc::new(current)), reading: tokio::sync::Mutex::new(()) }
    }

    /// The key of requests that are sent now; without headers it is the one that they have.
    pub fn current(&self) -> Arc<CurrentKey> {
        self.current.read().clone()
    }

    /// A server refused this key: true where there is another one by now.
    pub async fn renew(&self, refused: &Arc<CurrentKey>) -> bool {
        let _reading = self.reading.lock().await;
        if !Arc::ptr_eq(&self.current(), refused) {
            return true;
        }
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || read(&path)).await;
        let Some(key) = read.ok().flatten().filter(|key| *key != refused.key) else { return false };
        let filled = self.headers.iter().map(|(name, template)| {
            let mut value = HeaderValue::try_from(template.replace("{key}", &key)).ok()?;
            value.set_sensitive(true);
            Some((name.clone(), value))
        });
        let Some(headers) = filled.collect() else { return false };
        let mut redactors = refused.redactors.clone();
        redactors.push(Redactor::of(&key));
        *self.current.write() = Arc::new(CurrentKey { key, headers, redactors });
        true
    }
}

/// The key in a file, if there is one.
fn read(path: &Path) -> Option<String> {
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    File::open(path).ok()?.take(LONGEST + 1).read_to_string(&mut text).ok()?;
    let key = text.trim_start_matches('\u{feff}').trim();
    (!key.is_empty() && text.len() as u64 <= LONGEST).then(|| key.to_owned())
}
