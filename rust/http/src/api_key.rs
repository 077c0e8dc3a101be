//! The API key of a function's requests: the headers that carry it, and its redaction.
//!
//! A key in a file is read again once a server has refused it: others may have replaced it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use parking_lot::RwLock;

use crate::endpoint_error::EndpointError;
use crate::redaction::Redactor;

/// No key is longer.
const LONGEST: u64 = 64 << 10;

/// See the module. Shared by all endpoints of a function.
pub(crate) struct ApiKey {
    /// The headers that carry the key, with `{key}` where it belongs.
    headers: Vec<(HeaderName, String)>,
    /// The file of the key, if it is read again.
    file: Option<PathBuf>,
    /// Written by `renew`.
    current: RwLock<Arc<CurrentKey>>,
    /// Held by who reads the file: others wait for what it found.
    reading: tokio::sync::Mutex<()>,
}

/// The key as it was last read.
pub(crate) struct CurrentKey {
    key: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Redactors of this key and of earlier ones, which a server may still echo.
    redactors: Vec<Redactor>,
}

impl CurrentKey {
    fn new(key: &str, templates: &[(HeaderName, String)], mut redactors: Vec<Redactor>) -> Result<Self, EndpointError> {
        let filled = templates.iter().map(|(name, template)| {
            let mut value = HeaderValue::try_from(template.replace("{key}", key)).map_err(|_| EndpointError::Key)?;
            value.set_sensitive(true);
            Ok((name.clone(), value))
        });
        let headers = filled.collect::<Result<_, _>>()?;
        redactors.push(Redactor::of(key));
        Ok(Self { key: key.to_owned(), headers, redactors })
    }
}

impl ApiKey {
    /// A key that these headers carry, without any `Authorization: Bearer`.
    pub fn new(
        key: &str,
        file: Option<PathBuf>,
        mut headers: Vec<(HeaderName, String)>,
    ) -> Result<Self, EndpointError> {
        if headers.is_empty() {
            headers.push((AUTHORIZATION, "Bearer {key}".to_owned()));
        }
        let current = RwLock::new(Arc::new(CurrentKey::new(key, &headers, Vec::new())?));
        Ok(Self { headers, file, current, reading: tokio::sync::Mutex::default() })
    }

    /// The key of requests that are sent now.
    pub fn current(&self) -> Arc<CurrentKey> {
        self.current.read().clone()
    }

    pub fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.current().headers {
            headers.insert(name, value.clone());
        }
    }

    /// `text` with the keys, or pieces of them, replaced by `…`.
    pub fn redact(&self, text: &str) -> String {
        self.current().redactors.iter().fold(text.to_owned(), |text, key| key.redact(&text))
    }

    /// A server refused this key: true where there is another one by now.
    pub async fn renew(&self, refused: &Arc<CurrentKey>) -> bool {
        let Some(path) = self.file.clone() else { return false };
        let _reading = self.reading.lock().await;
        if !Arc::ptr_eq(&self.current(), refused) {
            return true;
        }
        let read = tokio::task::spawn_blocking(move || read(&path)).await;
        let Some(key) = read.ok().flatten().filter(|key| *key != refused.key) else { return false };
        let Ok(renewed) = CurrentKey::new(&key, &self.headers, refused.redactors.clone()) else { return false };
        *self.current.write() = Arc::new(renewed);
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
