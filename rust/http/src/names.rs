//! Addresses of servers by name: asked for once, however many connections are made at a time.
//!
//! - N-1  The system's resolver blocks a thread for each question: a thousand connections at once ask one question and wait for its answer.
//! - N-2  An answer is used for `FRESH` at most; a failed question is asked again with the next connection.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::dns::Name;
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;
use tower_service::Service;

const FRESH: Duration = Duration::from_secs(10);

/// Addresses, and when they were found.
type Known = Arc<AsyncMutex<Option<(Instant, Vec<SocketAddr>)>>>;

/// The names of one endpoint's servers: its own, and proxies'.
#[derive(Clone, Default)]
pub struct Names {
    known: Arc<Mutex<BTreeMap<String, Known>>>,
}

impl Names {
    async fn find(self, name: String) -> io::Result<Vec<SocketAddr>> {
        let known = self.known.lock().entry(name.clone()).or_default().clone();
        let mut found = known.lock().await; // whoever comes later waits for this answer (N-1)
        if let Some((at, addresses)) = found.as_ref()
            && at.elapsed() < FRESH
        {
            return Ok(addresses.clone());
        }
        let addresses: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
        *found = Some((Instant::now(), addresses.clone()));
        Ok(addresses)
    }
}

impl Service<Name> for Names {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let found = self.clone().find(name.as_str().to_owned());
        Box::pin(async move { Ok(found.await?.into_iter()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn n1_n2_an_answer_is_kept_and_a_failure_is_not() {
        let names = Names::default();
        let find = |name: &str| names.clone().find(name.to_owned());
        let found = find("localhost").await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()) && !found.is_empty());
        assert_eq!(find("localhost").await.unwrap(), found);
        assert!(find("no.such.host.invalid").await.is_err());
        let unknown = names.known.lock()["no.such.host.invalid"].clone();
        assert!(unknown.lock().await.is_none());
    }
}
