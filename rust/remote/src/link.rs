//! One end of a connection between a driver and an agent: messages out, messages in, and its loss.
//!
//! - Waiting bytes are joined when the transport requests some: a slow transport gets fewer, larger
//!   messages, and one with a high cost per message may wait longer for items that are not urgent.
//!   Items are written straight into the message that is sent, without a copy.
//! - `deliver` and `write` never wait. A peer that delivers more than the engine reads is lost.
//! - After `close` the bytes written before are still sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use guerdon_core::condvar::Condvar;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Size from which on a message is closed.
const MESSAGE_BYTES: usize = 1 << 20;
/// Size from which on a message is expected to grow further: it is allocated at full size at once,
/// instead of being copied repeatedly.
const LARGE_BYTES: usize = 64 << 10;
/// Room for a message and for the item that closes it.
const ROOM_BYTES: usize = MESSAGE_BYTES + (256 << 10);
/// Bytes after which a transport that waits for more checks again.
const LOOK_BYTES: usize = 16 << 10;
/// The most bytes that may wait to be read.
const UNREAD_BYTES: usize = 256 << 20;

/// Result of a transport's request for bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum OutgoingBytes {
    Message(Vec<u8>),
    /// No bytes wait to be sent yet.
    Empty,
    /// There will be no more bytes, for the reason if one was given.
    Closed(Option<String>),
}

/// Time for which a transport holds back bytes that are not urgent, to send more together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Longest wait.
    pub linger: Duration,
    /// Size that ends the wait.
    pub enough: usize,
}

impl Pace {
    /// The pace of transports with a low cost per message.
    pub const AT_ONCE: Self = Self { linger: Duration::ZERO, enough: 0 };
}

/// End of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkLoss {
    pub reason: String,
    /// True if no call can be the cause: the node was preempted, or left.
    pub innocent: bool,
}

#[derive(Default)]
struct LinkState {
    outgoing: VecDeque<Vec<u8>>,
    /// The time since which the first of the bytes waits; `None` without any.
    waits_since: Option<Instant>,
    hurries: bool,
    incoming: VecDeque<Vec<u8>>,
    unread: usize,
    loss: Option<LinkLoss>,
    closed: bool,
}

/// See the module.
pub struct Link {
    name: Arc<str>,
    state: Mutex<LinkState>,
    /// Threads of a transport wait here for bytes to send.
    sendable: Condvar,
    /// A task of a transport waits here for bytes to send.
    sendable_task: Notify,
    /// The engine waits here for messages.
    arrived: Notify,
}

impl Link {
    /// Makes the end that leads to this node or driver.
    #[must_use]
    pub fn new(name: &str) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            state: Mutex::default(),
            sendable: Condvar::new(),
            sendable_task: Notify::new(),
            arrived: Notify::new(),
        })
    }

    /// Returns the name of the other end.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the next bytes to send, for a transport's thread, which waits for them.
    #[must_use]
    pub fn take(&self, timeout: Duration, pace: Pace) -> OutgoingBytes {
        let until = Instant::now().checked_add(timeout);
        let mut state = self.state.lock();
        loop {
            match Self::next_of(&mut state, pace) {
                OutgoingBytes::Empty => {}
                taken => return taken,
            }
            let due = state.waits_since.and_then(|since| since.checked_add(pace.linger));
            if until.is_some_and(|until| Instant::now() >= until) {
                return OutgoingBytes::Empty;
            }
            match due.into_iter().chain(until).min() {
                None => self.sendable.wait(&mut state),
                Some(at) => {
                    self.sendable.wait_until(&mut state, at.into_std());
                }
            }
        }
    }

    /// Returns the next bytes to send, for a transport's task; `None` when no more will come.
    pub async fn next(&self, pace: Pace) -> Option<Vec<u8>> {
        loop {
            let notified = self.sendable_task.notified();
            let (taken, since) = {
                let mut state = self.state.lock();
                (Self::next_of(&mut state, pace), state.waits_since)
            };
            match taken {
                OutgoingBytes::Message(message) => return Some(message),
                OutgoingBytes::Closed(_) => return None,
                OutgoingBytes::Empty => {}
            }
            match since.and_then(|since| since.checked_add(pace.linger)) {
                None => notified.await,
                // The state is checked again, with or without a notification.
                Some(due) => drop(timeout_at(due, notified).await),
            }
        }
    }

    fn next_of(state: &mut LinkState, pace: Pace) -> OutgoingBytes {
        let waits = state.outgoing.front().is_some_and(|message| {
            let lingered = state.waits_since.is_none_or(|since| since.elapsed() >= pace.linger);
            !lingered && !state.hurries && !state.closed && state.loss.is_none() && message.len() < pace.enough
        });
        if waits {
            return OutgoingBytes::Empty;
        }
        let message = state.outgoing.pop_front();
        if state.outgoing.is_empty() {
            (state.waits_since, state.hurries) = (None, false);
        }
        match message {
            Some(message) if state.loss.is_none() => OutgoingBytes::Message(message),
            _ if state.closed || state.loss.is_some() => {
                OutgoingBytes::Closed(state.loss.as_ref().map(|loss| loss.reason.clone()))
            }
            _ => OutgoingBytes::Empty,
        }
    }

    /// Takes a message from the other end.
    pub fn deliver(&self, message: Vec<u8>) {
        let flooded = {
            let mut state = self.state.lock();
            if state.closed || state.loss.is_some() {
                return;
            }
            state.unread += message.len();
            state.incoming.push_back(message);
            state.unread > UNREAD_BYTES
        };
        if flooded {
            self.lost(&format!("it sent more than {} MB that were not read yet", UNREAD_BYTES >> 20), false);
        }
        self.arrived.notify_one();
    }

    /// Records that the connection is lost. Only the first call counts.
    pub fn lost(&self, reason: &str, innocent: bool) {
        {
            let mut state = self.state.lock();
            if state.loss.is_some() || state.closed {
                return;
            }
            state.loss = Some(LinkLoss { reason: reason.to_owned(), innocent });
            state.outgoing.clear();
        }
        self.wake_all();
    }

    /// Returns whether the engine has closed it, or it is lost.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let state = self.state.lock();
        state.closed || state.loss.is_some()
    }

    /// Closes the engine's end.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.wake_all();
    }

    /// Drops the messages that arrived and are not read any more.
    pub(crate) fn forget(&self) {
        let mut state = self.state.lock();
        (state.incoming, state.unread) = (VecDeque::new(), 0);
    }

    fn wake_all(&self) {
        self.sendable.notify_all();
        // Wakes the waiting task, and the next one that waits.
        self.sendable_task.notify_waiters();
        self.sendable_task.notify_one();
        self.arrived.notify_one();
    }

    /// Writes an urgent item; the waiting bytes are sent with it.
    pub(crate) fn write(&self, write: impl FnOnce(&mut Vec<u8>)) {
        self.put(usize::MAX, true, write);
    }

    /// Writes an item that is not urgent.
    pub(crate) fn write_soon(&self, write: impl FnOnce(&mut Vec<u8>)) {
        self.put(usize::MAX, false, write);
    }

    /// Writes an item that is not urgent if fewer than `waiting` bytes wait to be sent; true if it
    /// was written.
    pub(crate) fn write_below(&self, waiting: usize, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.put(waiting, false, write)
    }

    /// Makes the waiting bytes urgent.
    pub(crate) fn hurry(&self) {
        {
            let mut state = self.state.lock();
            if state.outgoing.is_empty() {
                return;
            }
            state.hurries = true;
        }
        self.sendable.notify_one();
        self.sendable_task.notify_one();
    }

    fn put(&self, most_waiting: usize, hurries: bool, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let news = {
            let mut state = self.state.lock();
            if state.closed || state.loss.is_some() {
                return false;
            }
            // Messages have 1 MB, so there are few to add up before the bound is reached.
            if most_waiting < usize::MAX && state.outgoing.iter().map(Vec::len).sum::<usize>() >= most_waiting {
                return false;
            }
            let first = state.outgoing.is_empty();
            if first {
                state.waits_since = Some(Instant::now());
            }
            state.hurries |= hurries;
            if state.outgoing.back().is_none_or(|last| last.len() >= MESSAGE_BYTES) {
                state.outgoing.push_back(Vec::new());
            }
            let Some(message) = state.outgoing.back_mut() else { return false };
            let before = message.len();
            if before >= LARGE_BYTES && message.capacity() < ROOM_BYTES {
                message.reserve_exact(ROOM_BYTES - before);
            }
            write(message);
            // A thread that waits for more need not wake at each item.
            first || hurries || before / LOOK_BYTES != message.len() / LOOK_BYTES
        };
        if news {
            self.sendable.notify_one();
        }
        self.sendable_task.notify_one();
        true
    }

    /// Returns the next message of the other end, or the reason for the end of the connection.
    /// Earlier messages are returned first.
    pub(crate) async fn receive(&self) -> Result<Vec<u8>, LinkLoss> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(message) = state.incoming.pop_front() {
                    state.unread -= message.len();
                    return Ok(message);
                }
                if let Some(loss) = &state.loss {
                    return Err(loss.clone());
                }
                if state.closed {
                    return Err(LinkLoss { reason: "it was closed".to_owned(), innocent: true });
                }
            }
            self.arrived.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_entries_go_together_up_to_a_bound() {
        let link = Link::new("n");
        assert_eq!(link.take(Duration::ZERO, Pace::AT_ONCE), OutgoingBytes::Empty);
        for byte in 0..3 {
            link.write(|out| out.push(byte));
        }
        assert_eq!(link.take(Duration::ZERO, Pace::AT_ONCE), OutgoingBytes::Message(vec![0, 1, 2]));
        link.write(|out| out.resize(MESSAGE_BYTES, 1));
        link.write(|out| out.push(2));
        let OutgoingBytes::Message(first) = link.take(Duration::ZERO, Pace::AT_ONCE) else { panic!() };
        assert_eq!(
            (first.len(), link.take(Duration::ZERO, Pace::AT_ONCE)),
            (MESSAGE_BYTES, OutgoingBytes::Message(vec![2]))
        );
    }

    #[test]
    fn a_large_message_gets_its_room_at_once() {
        let link = Link::new("n");
        link.write(|out| out.resize(LARGE_BYTES, 1));
        link.write(|out| out.push(2));
        let place = |link: &Link| link.state.lock().outgoing[0].as_ptr() as usize;
        let before = place(&link);
        (0..15).for_each(|_| link.write(|out| out.resize(out.len() + LARGE_BYTES, 3)));
        assert_eq!(place(&link), before);
        let few = Link::new("n");
        few.write(|out| out.push(1));
        assert!(few.state.lock().outgoing[0].capacity() < LARGE_BYTES);
    }

    #[test]
    fn unhurried_bytes_wait_for_more() {
        let link = Link::new("n");
        let (never, no_time) = (Pace { linger: Duration::MAX, enough: 4 }, Duration::ZERO);
        link.write_soon(|out| out.push(1));
        assert_eq!(link.take(no_time, never), OutgoingBytes::Empty);
        link.write_soon(|out| out.extend([2, 3, 4]));
        assert_eq!(link.take(no_time, never), OutgoingBytes::Message(vec![1, 2, 3, 4]));
        link.write_soon(|out| out.push(5));
        link.write(|out| out.push(6));
        assert_eq!(link.take(no_time, never), OutgoingBytes::Message(vec![5, 6]));
        link.write_soon(|out| out.push(7));
        let short = Pace { linger: Duration::from_millis(5), ..never };
        let start = Instant::now();
        assert_eq!(link.take(Duration::MAX, short), OutgoingBytes::Message(vec![7]));
        assert!(start.elapsed() >= Duration::from_millis(4));
        link.write_soon(|out| out.push(8));
        link.close();
        assert_eq!(link.take(no_time, never), OutgoingBytes::Message(vec![8]));
        assert_eq!(link.take(no_time, never), OutgoingBytes::Closed(None));
    }

    #[test]
    fn a_thread_that_waits_for_more_is_woken_by_what_hurries_and_by_enough() {
        let link = Link::new("n");
        let never = Pace { linger: Duration::MAX, enough: 3 * LOOK_BYTES };
        for hurries in [true, false] {
            link.write_soon(|out| out.push(7));
            let waiting = link.clone();
            let thread = std::thread::spawn(move || waiting.take(Duration::from_secs(60), never));
            std::thread::sleep(Duration::from_millis(10));
            if hurries {
                link.write(|out| out.push(8));
            } else {
                (0..3).for_each(|_| link.write_soon(|out| out.resize(out.len() + LOOK_BYTES, 8)));
            }
            assert!(matches!(thread.join().unwrap(), OutgoingBytes::Message(_)));
        }
    }

    #[tokio::test]
    async fn delivered_bytes_are_not_lost_at_the_end() {
        let link = Link::new("n");
        link.write(|out| out.push(1));
        link.deliver(vec![2]);
        link.close();
        link.write(|out| out.push(9));
        link.deliver(vec![9]);
        assert_eq!(link.next(Pace::AT_ONCE).await, Some(vec![1]));
        assert_eq!((link.next(Pace::AT_ONCE).await, link.receive().await), (None, Ok(vec![2])));
        assert!(link.receive().await.is_err() && link.is_closed());
    }

    #[tokio::test]
    async fn a_loss_is_reported_once_with_its_first_reason() {
        let link = Link::new("n");
        link.deliver(vec![2]);
        link.lost("cable", true);
        link.lost("other", false);
        assert_eq!(link.receive().await, Ok(vec![2]));
        assert_eq!(link.receive().await, Err(LinkLoss { reason: "cable".to_owned(), innocent: true }));
        assert_eq!(link.take(Duration::ZERO, Pace::AT_ONCE), OutgoingBytes::Closed(Some("cable".to_owned())));
    }

    #[tokio::test]
    async fn flooded_connection_gives_up() {
        let link = Link::new("n");
        (0..257).for_each(|_| link.deliver(vec![0; 1 << 20]));
        assert!(link.is_closed());
    }

    #[test]
    fn a_thread_that_waits_is_woken() {
        let link = Link::new("n");
        let waiting = link.clone();
        let thread = std::thread::spawn(move || waiting.take(Duration::MAX, Pace::AT_ONCE));
        std::thread::sleep(Duration::from_millis(10));
        link.write(|out| out.push(7));
        assert_eq!(thread.join().unwrap(), OutgoingBytes::Message(vec![7]));
        let waiting = link.clone();
        let thread = std::thread::spawn(move || waiting.take(Duration::from_secs(60), Pace::AT_ONCE));
        link.close();
        assert_eq!(thread.join().unwrap(), OutgoingBytes::Closed(None));
    }
}
