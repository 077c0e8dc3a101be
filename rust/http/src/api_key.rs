//! The API key of a function's requests: the headers that carry it, and its redaction.
//!
//! - A key that comes from a file or a function is read again once a server has refused it: it may
//!   have been replaced.
//! - A function is first asked by the first request, on a thread that is not the runtime's.
//! - Reading a key takes none of the time of a request, and goes on if the request is dropped.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use parking_lot::RwLock;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::endpoint_error::EndpointError;
use crate::redaction::Redactor;

/// No key is longer.
const LONGEST: u64 = 64 << 10;
/// Longest time for a file or a function to give a key.
const WITHIN: Duration = Duration::from_secs(30);
/// Earlier keys that are redacted: a server does not echo one for longer.
const REDACTED: usize = 16;

/// Takes the key that a function returned, or the reason of its failure.
pub type KeyAnswer = oneshot::Sender<Result<String, String>>;

/// Source of a key.
#[derive(Clone)]
pub enum KeySource {
    Text(String),
    /// The key as it was read from a file, and the file.
    File(String, PathBuf),
    /// Has a function called, which answers.
    Function(Arc<dyn Fn(KeyAnswer) + Send + Sync>),
}

/// See the module. Shared by all endpoints of a function.
pub(crate) struct ApiKey {
    /// The headers that carry the key, with `{key}` where it belongs.
    headers: Vec<(HeaderName, String)>,
    source: KeySource,
    /// Written by `read`; none before a function was asked.
    current: RwLock<Option<Arc<CurrentKey>>>,
    /// Held while the key is read, with the last failure: all who waited meanwhile get it.
    reading: tokio::sync::Mutex<Option<(Instant, NoOtherKey)>>,
}

/// Reason why the key is the same as before.
#[derive(Clone, Debug)]
pub(crate) enum NoOtherKey {
    /// Its source still has the one that was refused, or has none.
    Same,
    /// The function that gives the key failed.
    Failed(String),
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
        redactors.drain(..redactors.len().saturating_sub(REDACTED));
        Ok(Self { key: key.to_owned(), headers, redactors })
    }
}

impl ApiKey {
    /// A key that these headers carry, without any `Authorization: Bearer`.
    pub fn new(source: KeySource, mut headers: Vec<(HeaderName, String)>) -> Result<Self, EndpointError> {
        if headers.is_empty() {
            headers.push((AUTHORIZATION, "Bearer {key}".to_owned()));
        }
        let current = match &source {
            KeySource::Text(key) | KeySource::File(key, _) => Some(CurrentKey::new(key, &headers, Vec::new())?),
            KeySource::Function(_) => None,
        };
        let current = RwLock::new(current.map(Arc::new));
        Ok(Self { headers, source, current, reading: tokio::sync::Mutex::default() })
    }

    fn current(&self) -> Option<Arc<CurrentKey>> {
        self.current.read().clone()
    }

    pub fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in self.current().iter().flat_map(|current| &current.headers) {
            headers.insert(name, value.clone());
        }
    }

    /// `text` with the keys, or pieces of them, replaced by `…`.
    pub fn redact(&self, text: &str) -> String {
        let current = self.current();
        // The newest first: keys may begin alike, and an earlier one would leave its end.
        let redactors = current.iter().flat_map(|current| &current.redactors).rev();
        redactors.fold(text.to_owned(), |text, key| key.redact(&text))
    }

    /// The key of requests that are sent now: another than the one that a server `refused`.
    pub async fn other_than(
        self: &Arc<Self>,
        refused: Option<&Arc<CurrentKey>>,
    ) -> Result<Arc<CurrentKey>, NoOtherKey> {
        if let Some(other) = self.current_but(refused) {
            return Ok(other);
        }
        let (this, refused, asked) = (self.clone(), refused.cloned(), Instant::now());
        // A separate task reads it: the key that one request asked for serves the next.
        let read = tokio::spawn(async move { this.read_again(refused.as_ref(), asked).await });
        read.await.unwrap_or(Err(NoOtherKey::Same))
    }

    fn current_but(&self, refused: Option<&Arc<CurrentKey>>) -> Option<Arc<CurrentKey>> {
        self.current().filter(|current| !refused.is_some_and(|refused| Arc::ptr_eq(current, refused)))
    }

    /// Reads the key, unless another request has done so since `asked`.
    async fn read_again(
        &self,
        refused: Option<&Arc<CurrentKey>>,
        asked: Instant,
    ) -> Result<Arc<CurrentKey>, NoOtherKey> {
        let mut last = self.reading.lock().await;
        if let Some(other) = self.current_but(refused) {
            return Ok(other);
        }
        if let Some((ended, why)) = &*last
            && *ended >= asked
        {
            return Err(why.clone());
        }
        let read = tokio::time::timeout(WITHIN, self.read(refused)).await;
        let late = || Err(NoOtherKey::Failed(format!("it has returned no key within {} s", WITHIN.as_secs())));
        let read = read.unwrap_or_else(|_| late());
        match &read {
            Ok(renewed) => *self.current.write() = Some(renewed.clone()),
            Err(why) => *last = Some((Instant::now(), why.clone())),
        }
        read
    }

    async fn read(&self, refused: Option<&Arc<CurrentKey>>) -> Result<Arc<CurrentKey>, NoOtherKey> {
        let key = match &self.source {
            KeySource::Text(_) => None,
            KeySource::File(_, path) => {
                let path = path.clone();
                tokio::task::spawn_blocking(move || read(&path)).await.ok().flatten()
            }
            KeySource::Function(ask) => {
                let (answer, answered) = oneshot::channel();
                ask(answer);
                let answered = answered.await.unwrap_or_else(|_| Err("its thread has ended".to_owned()));
                Some(answered.map_err(|why| NoOtherKey::Failed(self.redact(&why)))?)
            }
        };
        let is_other = |key: &String| refused.is_none_or(|refused| refused.key != *key);
        let key = key.filter(is_other).ok_or(NoOtherKey::Same)?;
        let earlier = self.current().map(|current| current.redactors.clone()).unwrap_or_default();
        let renewed = CurrentKey::new(&key, &self.headers, earlier);
        renewed.map(Arc::new).map_err(|error| match &self.source {
            KeySource::Function(_) => NoOtherKey::Failed(error.to_string()),
            _ => NoOtherKey::Same,
        })
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A key that a function gives, which is told how often it was asked.
    fn key_of(give: impl Fn(usize, KeyAnswer) + Send + Sync + 'static) -> Arc<ApiKey> {
        let asked = AtomicUsize::new(0);
        let ask = move |answer| give(asked.fetch_add(1, Ordering::SeqCst), answer);
        Arc::new(ApiKey::new(KeySource::Function(Arc::new(ask)), Vec::new()).unwrap())
    }

    fn sent_with(key: &ApiKey) -> HeaderMap {
        let mut headers = HeaderMap::new();
        key.add_to(&mut headers);
        headers
    }

    #[tokio::test]
    async fn a_function_is_asked_once_for_all_requests_that_wait() {
        const KEYS: [&str; 2] = ["sk-morning-17", "sk-evening-42"];
        let key = key_of(|asked, answer| answer.send(Ok(KEYS[asked].to_owned())).unwrap());
        assert!(sent_with(&key).is_empty(), "nothing was asked yet");
        let (first, other) = tokio::join!(key.other_than(None), key.other_than(None));
        let first = first.unwrap();
        assert!(Arc::ptr_eq(&first, &other.unwrap()));
        assert_eq!(sent_with(&key)[AUTHORIZATION], "Bearer sk-morning-17");
        let (second, other) = tokio::join!(key.other_than(Some(&first)), key.other_than(Some(&first)));
        assert!(Arc::ptr_eq(&second.unwrap(), &other.unwrap()));
        assert_eq!(sent_with(&key)[AUTHORIZATION], "Bearer sk-evening-42");
        assert_eq!(key.redact("sk-morning-17 and sk-evening-42"), "… and …");
    }

    #[tokio::test(start_paused = true)]
    async fn a_function_that_hangs_or_fails_ends_the_requests_that_wait() {
        let hung = key_of(|_, answer| std::mem::forget(answer));
        let started = Instant::now();
        let (one, two) = tokio::join!(hung.other_than(None), hung.other_than(None));
        assert_eq!(started.elapsed(), WITHIN, "both wait for one call");
        for why in [one.err(), two.err()] {
            assert!(matches!(&why, Some(NoOtherKey::Failed(why)) if why.contains("within 30 s")), "{why:?}");
        }
        let fails = key_of(|_, answer| answer.send(Err("ValueError: no login".to_owned())).unwrap());
        let why = fails.other_than(None).await.err();
        assert!(matches!(&why, Some(NoOtherKey::Failed(why)) if why == "ValueError: no login"), "{why:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_comes_after_its_request_was_dropped_is_kept() {
        let slow = key_of(|_, answer| {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(5)).await;
                answer.send(Ok("late-key".to_owned()))
            });
        });
        let dropped = tokio::time::timeout(Duration::from_secs(1), slow.other_than(None)).await;
        assert!(dropped.is_err());
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(sent_with(&slow)[AUTHORIZATION], "Bearer late-key");
    }
}
