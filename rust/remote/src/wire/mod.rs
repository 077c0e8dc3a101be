//! Messages between a driver and an agent.
//!
//! A message is a row of items, all numbers little-endian: `u32 length of the body`, `u8 kind`, the
//! body. `to_agent` and `to_driver` have the kinds. Lengths are looked at before anything is made
//! for them; texts that are too long are shortened.

mod reader;
pub(crate) mod to_agent;
pub(crate) mod to_driver;

use thiserror::Error;

pub(crate) use reader::Items;
pub(crate) use to_agent::{FrameHead, ToAgent};
pub(crate) use to_driver::{InHandCall, ToDriver};

/// Raised with every change of the items: both sides must have the same.
pub(crate) const PROTOCOL: u16 = 4;

/// Digest that tells the functions of an engine from others'.
pub type Digest = [u8; 32];

/// Counters of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentStats {
    pub workers: u64,
    pub forks: u64,
    pub restarts: u64,
    pub kills: u64,
    /// Threads that are stuck in calls past their timeouts.
    pub abandoned_threads: u64,
}

/// Why bytes are refused: our processes never send them.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum WireError {
    #[error("an item of kind {0}, which there is not")]
    UnknownKind(u8),
    #[error("an item of kind {0} that is not well formed")]
    Malformed(u8),
    #[error("an item that is not whole")]
    Truncated,
}

/// Writes an item.
fn item(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, kind]);
    body(out);
    let length = u32::try_from(out.len() - start - 5).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Counts are far below this bound.
fn count(number: usize) -> [u8; 4] {
    u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes()
}

/// A text with its length before it.
fn text(text: &str, out: &mut Vec<u8>) {
    bytes(text.as_bytes(), out);
}

fn bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&count(bytes.len()));
    out.extend_from_slice(bytes);
}
