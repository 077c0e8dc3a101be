//! Addresses of servers by name: asked for once, however many connections are made at a time.
//!
//! - N-1  The system's resolver blocks a thread for each question: a thousand connections at once ask one question and wait for its answer.
//! - N-2  An answer is used for `FRESH` at most; a failed question is asked again with the next connection.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

const FRESH: Duration = Duration::from_secs(10);

/// Addresses, and when they were found.
type Known = Arc<AsyncMutex<Option<(Instant, Vec<IpAddr>)>>>;

/// The names of one endpoint's servers: its own, and proxies'.
#[derive(Clone, Default)]
pub struct Names {
    known: Arc<Mutex<BTreeMap<String, Known>>>,
}

impl Names {
    /// The addresses of a name, in the system's order.
    pub async fn find(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let known = self.known.lock().entry(name.to_owned()).or_default().clone();
        let mut found = known.lock().await; // whoever comes later waits for this answer (N-1)
        if let Some((at, addresses)) = found.as_ref()
            && at.elapsed() < FRESH
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
    async fn n1_n2_an_answer_is_kept_and_a_failure_is_not() {
        let names = Names::default();
        let found = names.find("localhost").await.unwrap();
        assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty());
        assert_eq!(names.find("localhost").await.unwrap(), found);
        assert!(names.find("no.such.host.invalid").await.is_err());
        let unknown = names.known.lock()["no.such.host.invalid"].clone();
        assert!(unknown.lock().await.is_none());
    }
}
