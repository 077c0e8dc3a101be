//! Behaviour of a mock judge, its counts, and the state that its connections share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::certificate::Certificate;
use super::latency::Latency;
use super::window::{RecentRequests, Window};

/// Behaviour of a mock judge.
#[derive(Clone, Debug, Default)]
pub struct JudgeConfig {
    pub tls: bool,
    pub certificate: Certificate,
    /// True if it requires a certificate of its clients, from the same authority.
    pub of_clients: bool,
    /// True if it accepts HTTP/2 only (over TLS: by ALPN).
    pub http2: bool,
    pub latency: Latency,
    /// Requests allowed in a sliding window; more are answered 429.
    pub window: Option<Window>,
    /// True if those 429s have no `Retry-After`.
    pub without_hint: bool,
    /// Share of requests that are answered 500.
    pub failing: f64,
    /// Port to listen on; 0 takes a free one.
    pub port: u16,
    pub seed: u64,
}

/// Counts of a mock judge. All are written by its connections.
#[derive(Debug, Default)]
pub struct Counts {
    pub connections: AtomicU64,
    pub handshakes: AtomicU64,
    pub requests: AtomicU64,
    pub answered: AtomicU64,
    pub refused: AtomicU64,
    pub in_flight: AtomicU64,
    pub most_in_flight: AtomicU64,
    /// Connections that ended while a request ran.
    pub abandoned: AtomicU64,
}

impl Counts {
    /// Returns it as JSON, for other programs.
    #[must_use]
    pub fn json(&self) -> String {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        serde_json::json!({
            "connections": read(&self.connections), "handshakes": read(&self.handshakes), "requests": read(&self.requests),
            "answered": read(&self.answered), "refused": read(&self.refused), "in_flight": read(&self.in_flight),
            "most_in_flight": read(&self.most_in_flight), "abandoned": read(&self.abandoned),
        })
        .to_string()
    }
}

/// State that all connections share.
pub(super) struct JudgeState {
    pub(super) config: JudgeConfig,
    pub(super) seen: Arc<Counts>,
    pub(super) window: Mutex<RecentRequests>,
    pub(super) random: Mutex<fastrand::Rng>,
    /// Faults that were to happen once, and did.
    pub(super) spent: Mutex<BTreeSet<String>>,
    /// Bodies of requests, the last ones.
    pub(super) bodies: Mutex<Vec<String>>,
}
