//! The remote lane: calls on other nodes, whose agents run them on their lanes.
//!
//! `lane` is what the scheduler sees, `node` one agent as the driver knows it, `session` the task
//! that serves it; `agent` is the other side. `link` carries bytes between the two, whatever the
//! transport, and `host` carries messages over a Unix socket; `wire` has their meaning. `loss` and
//! `isolated_frames` tell which call ended its node; `backlog` and `balance` keep its workers busy.
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
pub use wire::Digest;
