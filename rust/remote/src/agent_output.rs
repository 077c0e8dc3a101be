//! Output of an agent's workers on its way to a driver.
//!
//! - It goes to the first driver among those that read their messages.
//! - About 1 MB waits for a driver at most. Further lines are dropped and counted, and the count
//!   goes once to a driver that reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::link::Link;
use crate::wire::ToDriver;

/// Lines are written while fewer bytes than this wait to be sent.
const WAITING_BYTES: usize = 1 << 20;

/// See the module.
#[derive(Default)]
pub(crate) struct AgentOutput {
    /// Number of dropped lines that were not reported yet. Written by threads that print or answer
    /// a driver.
    dropped: AtomicU64,
}

impl AgentOutput {
    /// Passes lines on to one of these drivers.
    pub(crate) fn print(&self, links: &[Arc<Link>], lines: &[u8]) {
        let written = links.iter().any(|link| self.write(link, lines));
        if !links.is_empty() && !written {
            let count = lines.iter().filter(|&&byte| byte == b'\n').count();
            self.dropped.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    /// Reports the number of dropped lines, if no later line has.
    pub(crate) fn report(&self, link: &Link) {
        if self.dropped.load(Ordering::Relaxed) > 0 {
            self.write(link, b"");
        }
    }

    fn write(&self, link: &Link, lines: &[u8]) -> bool {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        let written = link.write_below(WAITING_BYTES, |out| {
            if dropped > 0 {
                let report = format!("[guerdon] {dropped} lines of output were dropped (they were not read in time)\n");
                ToDriver::Lines(report.into_bytes()).write(out);
            }
            if !lines.is_empty() {
                ToDriver::Lines(lines.to_vec()).write(out);
            }
        });
        if !written {
            self.dropped.fetch_add(dropped, Ordering::Relaxed);
        }
        written
    }
}
