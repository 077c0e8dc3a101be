//! Settings of an HTTP/2 server from the beginning of a connection, and the time of its last frame.
//!
//! hyper keeps both to itself. The first frame from a server is its SETTINGS (RFC 9113, 3.4); it is
//! read as it passes, and all bytes go on unchanged.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::connector::Io;

const HEAD: usize = 9;
const SETTINGS: u8 = 4;
const MAX_CONCURRENT_STREAMS: u16 = 3;
/// Bytes of one setting.
const SETTING: usize = 6;
/// A longer first frame is not waited for.
const LONGEST: usize = 4096;

/// Facts about the server at the other end of a connection.
pub struct Peer {
    start: Instant,
    /// Streams that it allows at a time. Written by `Http2Io`.
    streams: AtomicUsize,
    /// Milliseconds from `start` to its last bytes. Written by `Http2Io`.
    heard_ms: AtomicU64,
    settings_came: Notify,
}

impl Peer {
    /// Makes one that allows `streams` streams until its settings differ.
    pub fn new(streams: usize) -> Self {
        let (streams, heard_ms) = (AtomicUsize::new(streams), AtomicU64::new(0));
        Self { start: Instant::now(), streams, heard_ms, settings_came: Notify::new() }
    }

    pub fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Returns whether it sent anything since then.
    pub fn heard_since(&self, since: Instant) -> bool {
        self.start + Duration::from_millis(self.heard_ms.load(Ordering::Relaxed)) >= since
    }

    /// Waits for its settings.
    pub async fn settings_came(&self, patience: Duration) {
        let _ = tokio::time::timeout(patience, self.settings_came.notified()).await;
    }

    fn take_settings(&self, most: Option<usize>) {
        if let Some(most) = most {
            self.streams.fetch_min(most.max(1), Ordering::Relaxed);
        }
        self.settings_came.notify_one();
    }
}

/// A connection whose first frame is read as it passes.
pub struct Http2Io {
    inner: Box<dyn Io>,
    peer: Arc<Peer>,
    /// Result of the first frame; `None` once it is known.
    first: Option<Vec<u8>>,
}

impl Http2Io {
    pub fn new(inner: Box<dyn Io>, peer: Arc<Peer>) -> Self {
        Self { inner, peer, first: Some(Vec::new()) }
    }
}

/// The streams that a first frame allows; `None` while it is not all there.
fn allowed(frame: &[u8]) -> Option<Option<usize>> {
    let head = frame.get(..HEAD)?;
    let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
    if head[3] != SETTINGS || length > LONGEST {
        return Some(None);
    }
    let settings = frame.get(HEAD..HEAD + length)?;
    let mut of_streams = settings.chunks_exact(SETTING).filter_map(|setting| match *setting {
        [a, b, c, d, e, f] if u16::from_be_bytes([a, b]) == MAX_CONCURRENT_STREAMS => {
            Some(u32::from_be_bytes([c, d, e, f]) as usize)
        }
        _ => None,
    });
    Some(of_streams.next_back())
}

impl Read for Http2Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut out: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let ended = match &mut this.first {
            None => Pin::new(&mut this.inner).poll_read(context, out),
            Some(first) => {
                let mut bytes = [0; 1024];
                let room = bytes.len().min(out.remaining());
                let mut passing = ReadBuf::new(&mut bytes[..room]);
                ready!(Pin::new(&mut this.inner).poll_read(context, passing.unfilled()))?;
                out.put_slice(passing.filled());
                first.extend_from_slice(passing.filled());
                if let Some(most) = allowed(first) {
                    this.peer.take_settings(most);
                    this.first = None;
                }
                Poll::Ready(Ok(()))
            }
        };
        if ended.is_ready() {
            let since = u64::try_from(this.peer.start.elapsed().as_millis()).unwrap_or(u64::MAX);
            this.peer.heard_ms.store(since, Ordering::Relaxed);
        }
        ended
    }
}

impl Write for Http2Io {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_frame_says_how_many_streams() {
        let frame = |kind: u8, settings: &[(u16, u32)]| {
            let mut bytes = vec![0, 0, (SETTING * settings.len()) as u8, kind, 0, 0, 0, 0, 0];
            for (name, value) in settings {
                bytes.extend_from_slice(&name.to_be_bytes());
                bytes.extend_from_slice(&value.to_be_bytes());
            }
            bytes
        };
        let of_ten = frame(SETTINGS, &[(1, 4096), (3, 10), (4, 65535)]);
        assert_eq!(allowed(&of_ten), Some(Some(10)));
        for length in 0..of_ten.len() {
            assert_eq!(allowed(&of_ten[..length]), None, "{length} bytes of it");
        }
        assert_eq!(allowed(&frame(SETTINGS, &[])), Some(None));
        assert_eq!(allowed(&frame(0, &[(3, 10)])), Some(None));
        assert_eq!(allowed(&[255, 255, 255, SETTINGS, 0, 0, 0, 0, 0]), Some(None));
    }
}
