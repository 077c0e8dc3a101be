//! The remote lane: calls on other nodes, whose agents run them on their lanes.
//!
//! `lane` implements the trait of the scheduler, `node` is the driver's state of one agent,
//! `session` the task that serves it; `agent` is the other side. `link` carries bytes between the
//! two over any transport, and `host` carries messages over a Unix socket; `wire` defines them.
//! `loss` and `apart` find the call that ended its node; `backlog` and `balance` keep workers busy.
//!
//! - All scheduling is done in the driver: an agent retries no call and has no batches.
//! - However a node ends, each of its calls ends once. Neither side trusts the other's bytes: no
//!   bytes make it panic, wait for ever or grow without bound.

#![forbid(unsafe_code)]

mod agent;
mod agent_output;
mod agent_session;
mod agent_state;
mod backlog;
mod balance;
mod clock_offset;
mod config;
mod frame_values;
pub mod host;
mod inspection;
mod isolated_frames;
mod lane;
mod lane_state;
mod link;
mod loss;
mod node;
mod node_frame;
mod session;
mod wire;

pub use agent::Agent;
pub use agent_state::AgentConfig;
pub use config::{LastWords, LocalLane, Print, RemoteConfig, RunsOn, Warn};
pub use frame_values::FrameValues;
pub use lane::RemoteLane;
pub use link::{Link, LinkLoss, OutgoingBytes, Pace};
pub use node::{NodeSnapshot, NodeState};
pub use wire::{AgentStats, Digest};
