//! Handles a request of either protocol: counts it, keeps its body, chooses its fault.

use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::time::Instant;

use super::fault::Fault;
use super::reply;
use super::state::JudgeState;

/// Number of bodies that are kept.
const REMEMBERED: usize = 64;

/// A request as it came.
pub(super) struct Request {
    pub path: String,
    pub key: String,
    pub body: Vec<u8>,
}

/// Returns the fault of a request and the body of its response, after the latency.
pub(super) async fn handle(request: &Request, shared: &JudgeState) -> (Fault, String) {
    let seen = &shared.seen;
    seen.requests.fetch_add(1, Ordering::Relaxed);
    if request.path == "/seen" {
        return (Fault::None, seen.json());
    }
    let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    if body.is_null() {
        return (Fault::Status(400, None), String::new());
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
        let hint = (!shared.config.without_hint).then_some(wait.as_secs_f64());
        return (Fault::Status(429, hint), String::new());
    }
    let text = reply::text_of(&body);
    let (latency, unlucky) = {
        let mut random = shared.random.lock();
        (shared.config.latency.draw(&mut random), random.f64() < shared.config.failing)
    };
    let fault = if unlucky { Fault::Status(500, None) } else { Fault::of(&text, shared) };
    let now = seen.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
    seen.most_in_flight.fetch_max(now, Ordering::Relaxed);
    let counted = OpenRequest(shared);
    tokio::time::sleep(latency).await;
    drop(counted);
    let answer = reply::of(&request.path, &body, &text).to_string();
    (fault, answer)
}

/// Counts a request while it is in flight.
struct OpenRequest<'a>(&'a JudgeState);

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        self.0.seen.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
