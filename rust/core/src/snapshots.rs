//! Snapshots of endpoints and nodes, for metrics, `guerdon top` and Python, which gets them as they
//! are serialized.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// An endpoint of a judge or reward service.
#[derive(Clone, Debug, Serialize)]
pub struct EndpointSnapshot {
    pub url: String,
    /// One of the addresses of its name.
    pub address: Option<IpAddr>,
    pub weight: f64,
    pub breaker: &'static str,
    pub in_flight: usize,
    pub answered: u64,
    pub failed: u64,
    pub deferred: u64,
    /// The median of the last answers.
    pub p50_s: Option<f64>,
}

/// Progress of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum NodeState {
    /// Its agent has not answered yet.
    Connecting,
    Ready,
    /// It gets no more frames, and leaves when it has none.
    Draining,
    Lost,
}

impl NodeState {
    /// Returns the state of this number.
    #[must_use]
    pub const fn of(number: u8) -> Self {
        match number {
            0 => Self::Connecting,
            1 => Self::Ready,
            2 => Self::Draining,
            _ => Self::Lost,
        }
    }
}

/// A node that calls run on.
#[derive(Clone, Debug, Serialize)]
pub struct NodeSnapshot {
    pub name: Arc<str>,
    pub state: NodeState,
    /// Its workers.
    pub slots: usize,
    /// Frames, calls and their bytes that it has.
    pub frames: usize,
    pub calls: usize,
    pub bytes: usize,
    /// Number of calls that it has ended.
    pub ended: u64,
    /// Reason for its loss.
    pub reason: Option<String>,
    pub stats: AgentStats,
}

/// Counters of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStats {
    pub workers: u64,
    #[serde(rename = "worker_forks")]
    pub forks: u64,
    #[serde(rename = "worker_restarts")]
    pub restarts: u64,
    pub kills: u64,
    /// Threads that hang in calls past their timeouts.
    pub abandoned_threads: u64,
}
