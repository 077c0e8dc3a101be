//! The supervisor's end of a worker's socket: complete messages in, bytes out as the worker takes
//! them.

use std::io;

use rustix::net::RecvFlags;
use tokio::net::UnixStream;

use crate::wire::{Message, Parser, WireError};

/// A buffer that one large call made longer than this is not kept.
const KEPT: usize = 1 << 20;

/// Mode of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadMode {
    /// Reads if the runtime reported bytes.
    Announced,
    /// Reads all bytes, even those that the runtime has not noticed yet.
    All,
}

/// A worker's socket.
pub(super) struct WorkerSocket {
    socket: UnixStream,
    parser: Parser,
    /// Bytes for the worker, and how many of them were sent.
    unsent: Vec<u8>,
    sent: usize,
    ended: bool,
}

impl WorkerSocket {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self { socket, parser: Parser::default(), unsent: Vec::new(), sent: 0, ended: false }
    }

    /// Returns whether the worker's end is closed.
    pub(super) const fn has_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.unsent.len()
    }

    pub(super) async fn readable(&self) {
        // An error occurs again when the socket is read.
        let _ = self.socket.readable().await;
    }

    pub(super) async fn writable(&self) {
        let _ = self.socket.writable().await;
    }

    /// Returns the buffer for the next bytes to send.
    pub(super) fn outgoing(&mut self) -> &mut Vec<u8> {
        if !self.has_unsent() {
            self.unsent.clear();
            self.sent = 0;
        }
        &mut self.unsent
    }

    /// Sends as much as the socket takes; true if that was anything.
    pub(super) fn flush(&mut self) -> bool {
        let before = self.sent;
        while self.has_unsent() {
            match self.socket.try_write(&self.unsent[self.sent..]) {
                Ok(0) => break,
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The worker can't read any more; its end is detected elsewhere.
                Err(_) => self.sent = self.unsent.len(),
            }
        }
        let progress = self.sent > before;
        if !self.has_unsent() && self.unsent.capacity() > KEPT {
            self.unsent = Vec::new();
            self.sent = 0;
        }
        progress
    }

    /// Reads some of the arrived bytes; false if there were none.
    pub(super) fn read(&mut self, how: ReadMode) -> bool {
        let buffer = self.parser.buffer();
        buffer.reserve(8 << 10);
        let read = match how {
            ReadMode::Announced => self.socket.try_read_buf(buffer),
            ReadMode::All => {
                let spare = rustix::buffer::spare_capacity(buffer);
                rustix::net::recv(&self.socket, spare, RecvFlags::DONTWAIT).map(|(got, _)| got).map_err(Into::into)
            }
        };
        match read {
            Ok(0) => self.ended = true,
            Ok(_) => return true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.ended = true,
        }
        false
    }

    /// Returns the next complete message of the bytes read.
    pub(super) fn next(&mut self) -> Result<Option<Message>, WireError> {
        self.parser.next()
    }
}
