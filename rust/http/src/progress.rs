//! Progress of a request: for the reason of one that timed out.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Not connected yet.
const NO_CONNECTION: usize = usize::MAX;
/// Sent, or being sent, and nothing came back.
const NO_RESPONSE: usize = usize::MAX - 1;

/// See the module. Written by the request as it goes on; read when its time is over.
pub struct Progress(AtomicUsize);

impl Progress {
    pub const fn new() -> Self {
        Self(AtomicUsize::new(NO_CONNECTION))
    }

    pub fn connected(&self) {
        self.0.store(NO_RESPONSE, Ordering::Relaxed);
    }

    /// Adds bytes of its response, without the head.
    pub fn received(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// There is a connection to send it by.
    pub fn is_connected(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NO_CONNECTION
    }

    /// It was sent, and nothing came back.
    pub fn is_unanswered(&self) -> bool {
        self.0.load(Ordering::Relaxed) == NO_RESPONSE
    }

    /// Returns the progress of a server for a reason.
    pub fn describe(&self, host: &str) -> String {
        match self.0.load(Ordering::Relaxed) {
            NO_CONNECTION => format!("{host} had not taken the connection"),
            NO_RESPONSE => format!("{host} had not answered"),
            bytes => format!("{host} had sent {bytes} bytes of its answer"),
        }
    }
}
