//! `KeyRequests`: requests for an API key, which a thread of Python's answers by calling a function
//! of the user. They end with the reward function that the key belongs to.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use guerdon_http::{KeyAnswer, KeySource};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::gil::detached;

type Sending = Arc<Mutex<Option<Sender<KeyAnswer>>>>;

/// See the module.
#[pyclass(frozen, module = "guerdon._native")]
pub struct KeyRequests {
    /// Taken by the http lane, which then keeps the sender.
    ask: Mutex<Option<Sending>>,
    /// The sender. Emptied by `close`.
    sending: Weak<Mutex<Option<Sender<KeyAnswer>>>>,
    asked: Mutex<Receiver<KeyAnswer>>,
    /// The request that is being answered. Written by Python's thread.
    current: Mutex<Option<KeyAnswer>>,
}

impl KeyRequests {
    /// The source of a key that asks here; taken once.
    pub fn source(&self) -> Option<KeySource> {
        let ask = self.ask.lock().take()?;
        Some(KeySource::Function(Arc::new(move |answer| {
            // Dropped where the thread has ended, which the request is told by that.
            let _ = ask.lock().as_ref().map(|ask| ask.send(answer));
        })))
    }
}

#[pymethods]
impl KeyRequests {
    #[new]
    fn new() -> Self {
        let (ask, asked) = channel();
        let ask = Arc::new(Mutex::new(Some(ask)));
        let sending = Arc::downgrade(&ask);
        Self { ask: Mutex::new(Some(ask)), sending, asked: Mutex::new(asked), current: Mutex::default() }
    }

    /// Ends `next`: no request is answered any more.
    fn close(&self) {
        drop(self.sending.upgrade().and_then(|ask| ask.lock().take()));
    }

    /// Waits for the next request that nobody has given up; false at the end.
    fn next(&self, py: Python<'_>) -> bool {
        let next = detached(py, || self.asked.lock().iter().find(|request| !request.is_closed()));
        let is_there = next.is_some();
        *self.current.lock() = next;
        is_there
    }

    /// Answers that request with a key, or with the reason of the function's failure.
    #[pyo3(signature = (key, why = String::new()))]
    fn answer(&self, key: Option<String>, why: String) {
        if let Some(request) = self.current.lock().take() {
            // Nobody may wait any more.
            let _ = request.send(key.ok_or(why));
        }
    }
}
