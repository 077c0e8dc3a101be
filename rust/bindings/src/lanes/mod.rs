//! The lanes that run user code in this process: threads and event loops, all of them Python's own. Rust holds their work, keeps their
//! deadlines, and is called by them; it never calls them.
//!
//! - N-1  User code never runs on top of a Rust frame: at interpreter exit CPython ends a thread inside user code by unwinding it, and that
//!   aborts the process if there is a Rust frame below. So all methods here are leaves: Python calls them, and they come back.
//! - N-2  No method waits with the GIL held, and no lock is held while Python objects are made or released.
//! - N-3  Locks are taken in one order: a frame's (`Chunk`, `Jobs`), then the scheduler's, then a lane's own. With a lane's lock held nothing
//!   of the scheduler is called, and no frame is dropped.
//!
//! `thread` and `aio` are the lanes: a frame in the hands of a Python thread, of an event loop. `orders` holds what Python is asked for (threads,
//! loops, warnings), `arguments` finds the values of a frame's calls, `report` makes outcomes of what came of them.

pub mod aio;
mod arguments;
pub mod orders;
mod report;
pub mod thread;

use std::sync::Arc;

use pyo3::prelude::*;

use crate::gil;
use aio::AioLane;
use aio::event_loop::LoopQueue;
use orders::Orders;
use thread::ThreadLane;
use thread::chunk::Chunk;

/// What the Python threads of the lanes hold on to: where they get their work, and where they tell that they are gone.
#[pyclass(frozen, module = "guerdon._native")]
pub struct Lanes {
    orders: Arc<Orders>,
    threads: Arc<ThreadLane>,
    loops: Arc<AioLane>,
}

impl Lanes {
    pub const fn new(orders: Arc<Orders>, threads: Arc<ThreadLane>, loops: Arc<AioLane>) -> Self {
        Self { orders, threads, loops }
    }
}

#[pymethods]
impl Lanes {
    fn next_order(&self, py: Python<'_>) -> Option<String> {
        // What is there already is taken with the GIL kept: a loop that C code blocked would move on while it is let go, and what the keeper
        // is to look at would be gone.
        self.orders.take().or_else(|| gil::detached(py, || self.orders.wait())).map(orders::Order::words)
    }

    fn next_chunk(&self, py: Python<'_>, function: usize, thread: u64, ident: u64) -> Option<Chunk> {
        gil::detached(py, || self.threads.next_chunk(function, thread, ident))
    }

    fn leave(&self, function: usize, thread: u64) -> bool {
        self.threads.leave(function, thread)
    }

    fn stands(&self, py: Python<'_>, thread: u64, stack: String) {
        gil::detached(py, || self.threads.stands(thread, stack));
    }

    fn gone(&self, py: Python<'_>) {
        gil::detached(py, || self.threads.gone());
    }

    fn not_started(&self, py: Python<'_>, function: usize, reason: &str) {
        gil::detached(py, || self.threads.not_started(function, reason));
    }

    fn open_loop(&self, index: usize, generation: u64) -> Option<LoopQueue> {
        self.loops.open(index, generation)
    }

    fn loop_functions(&self, index: usize) -> Vec<usize> {
        self.loops.functions_of(index)
    }

    fn loop_name(&self, index: usize) -> String {
        self.loops.name_of(index)
    }
}
