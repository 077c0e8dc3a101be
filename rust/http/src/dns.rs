//! DNS with a short cache: one look-up, however many connections are made at once.
//!
//! The system's resolver blocks a thread for each question. An answer is used for `TTL`; a failed
//! look-up is repeated with the next connection.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

const TTL: Duration = Duration::from_secs(10);

/// Addresses, and when they were found.
type Known = Arc<AsyncMutex<Option<(Instant, Vec<IpAddr>)>>>;

/// Addresses of one endpoint's server and of its proxy.
#[derive(Clone, Default)]
pub struct DnsCache {
    known: Arc<Mutex<BTreeMap<String, Known>>>,
}

impl DnsCache {
    /// The addresses of a name, in the system's order.
    pub async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let known = self.known.lock().entry(name.to_owned()).or_default().clone();
        let mut found = known.lock().await; // others wait for this answer
        if let Some((at, addresses)) = found.as_ref()
            && at.elapsed() < TTL
        {
            return Ok(addresses.clone());
        }
        let addresses: Vec<IpAddr> = tokio::net::lookup_host((name, 0)).await?.map(|found| found.ip()).collect();
        *found = Some((Instant::now(), addresses.clone()));
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_are_cached_and_failures_are_not() {
        let dns = DnsCache::default();
        let found = dns.resolve("localhost").await.unwrap();
        assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty());
        assert_eq!(dns.resolve("localhost").await.unwrap(), found);
        assert!(dns.resolve("no.such.host.invalid").await.is_err());
        let unknown = dns.known.lock()["no.such.host.invalid"].clone();
        assert!(unknown.lock().await.is_none());
    }
}
