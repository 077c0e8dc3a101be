//! The addresses of host names, each of which is a separate endpoint (`resolve="all"`).
//!
//! - Names are looked up every `EVERY` while requests are sent, and at once where one is new.
//! - A look-up that fails, or finds nothing, changes nothing: the name server may be down while the
//!   endpoints are up.
//! - Addresses of both families count: one that can't be reached from here has an open breaker.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use crate::endpoint::Endpoint;

const EVERY: Duration = Duration::from_secs(10);
/// The same while no address is known at all.
const EVERY_UNKNOWN: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Default)]
pub struct Addresses {
    known: Mutex<KnownAddresses>,
    /// Held while names are looked up: others wait for that.
    looking_up: AsyncMutex<()>,
}

/// Written by `look_up` and `expect_new`.
#[derive(Default)]
struct KnownAddresses {
    by_name: BTreeMap<String, Vec<IpAddr>>,
    looked_up: Option<Instant>,
    /// Why the last look-up of a name failed.
    error: Option<String>,
}

impl KnownAddresses {
    fn is_stale(&self) -> bool {
        let every = if self.by_name.is_empty() { EVERY_UNKNOWN } else { EVERY };
        self.looked_up.is_none_or(|at| at.elapsed() >= every)
    }
}

impl Addresses {
    /// There may be names that nobody has looked up.
    pub fn expect_new(&self) {
        self.known.lock().looked_up = None;
    }

    /// Returns whether nobody knows an address, and it is time to look.
    pub fn is_new(&self) -> bool {
        let known = self.known.lock();
        known.looked_up.is_none() || (known.by_name.is_empty() && known.is_stale())
    }

    /// Returns whether it is time to look, and nobody does.
    pub fn is_stale(&self) -> bool {
        self.looking_up.try_lock().is_ok() && self.known.lock().is_stale()
    }

    pub fn error(&self) -> Option<String> {
        self.known.lock().error.clone()
    }

    /// Looks up the names of these endpoints; false if that was done meanwhile.
    pub async fn look_up(&self, endpoints: &[Endpoint]) -> bool {
        let _looking_up = self.looking_up.lock().await;
        if !self.known.lock().is_stale() {
            return false;
        }
        let mut found = Vec::new();
        for endpoint in endpoints {
            let name = endpoint.name();
            let answer = match name.parse::<IpAddr>() {
                Ok(address) => Ok(vec![address]),
                Err(_) => tokio::net::lookup_host((name, 0)).await.map(|all| all.map(|one| one.ip()).collect()),
            };
            found.push((name.to_owned(), answer));
        }
        self.take(found);
        true
    }

    fn take(&self, found: Vec<(String, io::Result<Vec<IpAddr>>)>) {
        let mut known = self.known.lock();
        (known.looked_up, known.error) = (Some(Instant::now()), None);
        for (name, answer) in found {
            match answer {
                Ok(mut addresses) if !addresses.is_empty() => {
                    addresses.sort_unstable();
                    addresses.dedup();
                    known.by_name.insert(name, addresses);
                }
                Ok(_) => known.error = Some(format!("{name} has no address")),
                Err(error) => known.error = Some(format!("{name}: {error}")),
            }
        }
    }

    /// The endpoints at all addresses that are known, each with the weight of its name.
    pub fn expand(&self, configured: &[(Endpoint, f64)]) -> Vec<(Endpoint, f64)> {
        let known = self.known.lock();
        let each = |(endpoint, weight): &(Endpoint, f64)| {
            let addresses = known.by_name.get(endpoint.name()).cloned().unwrap_or_default();
            let (endpoint, weight) = (endpoint.clone(), *weight);
            addresses.into_iter().map(move |address| (endpoint.at_address(address), weight))
        };
        configured.iter().flat_map(each).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> Endpoint {
        Endpoint::new("http://judge.example:8000/v1", Vec::new(), None, false, None).unwrap()
    }

    fn hosts(addresses: &Addresses) -> Vec<String> {
        addresses.expand(&[(endpoint(), 2.0)]).iter().map(|(one, _)| one.host()).collect()
    }

    fn found(addresses: &[&str]) -> Vec<(String, io::Result<Vec<IpAddr>>)> {
        vec![("judge.example".to_owned(), Ok(addresses.iter().map(|one| one.parse().unwrap()).collect()))]
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_come_and_go_and_failures_change_nothing() {
        let addresses = Addresses::default();
        assert!(addresses.is_new() && addresses.is_stale() && hosts(&addresses).is_empty());
        addresses.take(found(&["10.0.0.2", "10.0.0.1", "10.0.0.2"]));
        assert_eq!(hosts(&addresses), ["judge.example:8000 (10.0.0.1)", "judge.example:8000 (10.0.0.2)"]);
        assert!(!addresses.is_new() && !addresses.is_stale());
        tokio::time::sleep(EVERY).await;
        assert!(addresses.is_stale() && !addresses.is_new());
        addresses.take(found(&["10.0.0.2", "10.0.0.3"]));
        assert_eq!(hosts(&addresses), ["judge.example:8000 (10.0.0.2)", "judge.example:8000 (10.0.0.3)"]);
        for broken in [found(&[]), vec![("judge.example".to_owned(), Err(io::Error::other("SERVFAIL")))]] {
            addresses.take(broken);
            assert_eq!(hosts(&addresses).len(), 2);
            assert!(addresses.error().unwrap().starts_with("judge.example"));
        }
    }
}
