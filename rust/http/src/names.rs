//! Addresses of servers by name: asked for once, however many connections are made at a time.
//!
//! - N-1  The system's resolver blocks a thread for each question: a thousand connections at once ask one question and wait for its answer.
//! - N-2  An answer is used for `FRESH` at most; a failed question is asked again with the next connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

const FRESH: Duration = Duration::from_secs(10);

/// Addresses, and when they were found.
type Known = Arc<AsyncMutex<Option<(Instant, Vec<SocketAddr>)>>>;

/// The names of one endpoint's servers: its own, and proxies'.
#[derive(Default)]
pub struct Names {
    known: Mutex<BTreeMap<String, Known>>,
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_owned();
        let known = self.known.lock().entry(name.clone()).or_default().clone();
        Box::pin(async move {
            let mut found = known.lock().await; // whoever comes later waits for this answer (N-1)
            if let Some((at, addresses)) = found.as_ref()
                && at.elapsed() < FRESH
            {
                return Ok(Box::new(addresses.clone().into_iter()) as Addrs);
            }
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            *found = Some((Instant::now(), addresses.clone()));
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn n1_n2_an_answer_is_kept_and_a_failure_is_not() {
        let names = Names::default();
        let found: Vec<SocketAddr> = names.resolve("localhost".parse().unwrap()).await.unwrap().collect();
        assert!(found.iter().all(|address| address.ip().is_loopback()) && !found.is_empty());
        let again: Vec<SocketAddr> = names.resolve("localhost".parse().unwrap()).await.unwrap().collect();
        assert_eq!(found, again);
        assert!(names.resolve("no.such.host.invalid".parse().unwrap()).await.is_err());
        let unknown = names.known.lock()["no.such.host.invalid"].clone();
        assert!(unknown.lock().await.is_none());
    }
}
