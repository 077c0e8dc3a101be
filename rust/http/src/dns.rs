//! DNS with a short cache: one look-up for all connections that are made at once.
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

/// The addresses of a name, another one first each `turn`, so that connections spread over the
/// servers behind it. Families stay in the system's order: it knows which one works here.
pub fn rotated(mut addresses: Vec<IpAddr>, turn: usize) -> Vec<IpAddr> {
    if let Some(first) = addresses.first().copied() {
        // keeps the order of equals
        addresses.sort_by_key(|address| address.is_ipv4() != first.is_ipv4());
        let of_first = addresses.partition_point(|each| each.is_ipv4() == first.is_ipv4());
        let (one, other) = addresses.split_at_mut(of_first);
        for family in [one, other].into_iter().filter(|family| !family.is_empty()) {
            family.rotate_left(turn % family.len());
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_comes_first_in_turn() {
        let all = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let mixed = all(&["::1", "10.0.0.1", "::2", "10.0.0.2", "::3"]);
        assert_eq!(rotated(mixed.clone(), 0), all(&["::1", "::2", "::3", "10.0.0.1", "10.0.0.2"]));
        assert_eq!(rotated(mixed, 4), all(&["::2", "::3", "::1", "10.0.0.1", "10.0.0.2"]));
        assert_eq!(rotated(all(&["10.0.0.1"]), 7), all(&["10.0.0.1"]));
        assert_eq!(rotated(Vec::new(), 7), Vec::<IpAddr>::new());
    }

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
