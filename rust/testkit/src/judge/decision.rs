//! What becomes of a request, however it came: it is counted, remembered and given its fate.

use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::time::Instant;

use super::fate::Fate;
use super::{Shared, reply};

/// Bodies that are remembered.
const REMEMBERED: usize = 64;

/// A request as it came.
pub(super) struct Request {
    pub path: String,
    pub key: String,
    pub body: Vec<u8>,
}

/// What a request is to be told, after the time that it takes.
pub(super) async fn decide(request: &Request, shared: &Shared) -> (Fate, String) {
    let seen = &shared.seen;
    seen.requests.fetch_add(1, Ordering::Relaxed);
    if request.path == "/seen" {
        return (Fate::Answer, seen.json());
    }
    let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    if body.is_null() {
        return (Fate::Status(400, None), String::new());
    }
    {
        let mut bodies = shared.bodies.lock();
        if bodies.len() == REMEMBERED {
            bodies.remove(0);
        }
        bodies.push(String::from_utf8_lossy(&request.body).into_owned());
    }
    if let Some(window) = shared.config.window
        && let Err(wait) = shared.window.lock().admit(window, Instant::now())
    {
        seen.refused.fetch_add(1, Ordering::Relaxed);
        return (Fate::Status(429, Some(wait.as_secs_f64())), String::new());
    }
    let text = reply::text_of(&body);
    let (latency, unlucky) = {
        let mut random = shared.random.lock();
        (shared.config.latency.draw(&mut random), random.f64() < shared.config.failing)
    };
    let fate = if unlucky { Fate::Status(500, None) } else { Fate::of(&text, shared) };
    let now = seen.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
    seen.most_in_flight.fetch_max(now, Ordering::Relaxed);
    let counted = Counted(shared);
    tokio::time::sleep(latency).await;
    drop(counted);
    let answer = reply::of(&request.path, &body, &text).to_string();
    (fate, answer)
}

/// Counts a request while it is in hand.
struct Counted<'a>(&'a Shared);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.seen.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
