//! The body of a request, which may be sent more than once: to another endpoint, or again.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::long_body::{LongBody, WrittenLength};

/// See the module.
#[derive(Clone, Debug)]
pub enum RequestBody {
    Whole(Bytes),
    Long(Arc<LongBody>),
}

impl RequestBody {
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Long(body) => body.len(),
        }
    }

    /// Once to send.
    pub fn sent(&self) -> SentBody {
        SentBody { body: self.clone(), written: WrittenLength::default(), left: self.len() }
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }
}

impl From<Vec<u8>> for RequestBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Whole(bytes.into())
    }
}

/// A body on its way.
#[derive(Debug)]
pub struct SentBody {
    body: RequestBody,
    written: WrittenLength,
    left: usize,
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let piece = match &mut this.body {
            RequestBody::Whole(bytes) => Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty()),
            RequestBody::Long(body) => body.next(&mut this.written),
        };
        this.left = this.left.saturating_sub(piece.as_ref().map_or(this.left, Bytes::len));
        if this.left == 0 {
            this.body = RequestBody::Whole(Bytes::new()); // its texts are not needed any more
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}
