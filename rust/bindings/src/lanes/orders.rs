//! What the lanes ask of Python: to start a thread or a loop, to say a warning. One Python thread, the keeper, waits here and does it.
//!
//! - K-1  Each order is handed out once, in the order in which they were given.
//! - K-2  The keeper is let go when both lanes need it no more, and not before: closing a lane can still need a thread.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// Something for the keeper to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Start thread number `thread` for this function.
    Thread { function: usize, thread: u64 },
    /// Start a loop.
    Loop { index: usize, generation: u64 },
    /// Say that a thread had to be left behind in a call of this function; `count` are now.
    LeftBehind { function: usize, count: u64 },
    /// Say where this thread stands, which Python calls `ident`: its call is out of time.
    Where { thread: u64, ident: u64 },
    /// Look at what blocks this loop, and say it.
    Stalled { index: usize, generation: u64 },
    /// Warn that the circuit breaker of this function's endpoint opened, with its last error.
    BreakerOpen { function: usize, why: String },
    /// Say that a call of this function blocked its loop, and is over now.
    Blocked { index: usize, generation: u64, function: usize },
}

impl Order {
    /// As Python gets it: one text, since making a tuple could run the collector (A-3 of `rows`).
    pub fn words(self) -> String {
        match self {
            Self::Thread { function, thread } => format!("thread {function} {thread}"),
            Self::Loop { index, generation } => format!("loop {index} {generation}"),
            Self::LeftBehind { function, count } => format!("left-behind {function} {count}"),
            Self::Where { thread, ident } => format!("where {thread} {ident}"),
            Self::Stalled { index, generation } => format!("stalled {index} {generation}"),
            Self::BreakerOpen { function, why } => format!("breaker_open {function} 0 {why}"),
            Self::Blocked { index, generation, function } => format!("blocked {index} {generation} {function}"),
        }
    }
}

/// Which lane needs the keeper no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Threads,
    Loops,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Order>,
    threads_done: bool,
    loops_done: bool,
}

/// The keeper's queue.
#[derive(Default)]
pub struct Orders {
    /// Written by the lanes and by the keeper.
    state: Mutex<State>,
    news: Condvar,
}

impl Orders {
    pub fn give(&self, order: Order) {
        self.state.lock().waiting.push_back(order);
        self.news.notify_one();
    }

    /// A lane that is closed has no order left to give (K-2).
    pub fn done(&self, lane: Done) {
        let mut state = self.state.lock();
        match lane {
            Done::Threads => state.threads_done = true,
            Done::Loops => state.loops_done = true,
        }
        self.news.notify_all();
    }

    /// The next order, if there is one.
    pub fn take(&self) -> Option<Order> {
        self.state.lock().waiting.pop_front()
    }

    /// Waits for the next order; `None` when there will be no more.
    pub fn wait(&self) -> Option<Order> {
        let mut state = self.state.lock();
        loop {
            if let Some(order) = state.waiting.pop_front() {
                return Some(order);
            }
            if state.threads_done && state.loops_done {
                return None;
            }
            self.news.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k1_k2_orders_come_in_order_and_the_keeper_is_let_go_after_the_last() {
        let orders = Orders::default();
        let thread = Order::Thread { function: 1, thread: 7 };
        let stalled = Order::Stalled { index: 0, generation: 1 };
        orders.give(thread.clone());
        orders.done(Done::Loops);
        orders.give(stalled);
        orders.done(Done::Threads);
        assert_eq!(orders.wait(), Some(thread));
        assert_eq!(orders.wait().map(Order::words), Some("stalled 0 1".to_owned()));
        assert_eq!(orders.wait(), None);
    }
}
