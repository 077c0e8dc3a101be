//! Values for the calls of a batch. The core passes them to the lanes and never reads them.
//!
//! payload-1  The last holder of a payload, such as a late frame on a lane's thread, does not drop
//! it, because a drop may run user code. It goes to `PayloadRelease`, whose listener moves it to a
//! thread that may run user code.

use std::any::Any;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::function::FunctionId;
use guerdon_wire::sent_constants::SentConstants;
use guerdon_wire::text::RawText;

/// The arguments of a batch's calls, captured when the batch was submitted or, if it is streamed,
/// added to.
pub trait Payload: Send + Sync + 'static {
    /// The keyword names of the values of a function's calls (of its `finish_group`, if `finish`);
    /// `None` for values by position.
    fn names(&self, _function: FunctionId, _finish: bool) -> Option<&[String]> {
        None
    }

    /// Writes the values of these samples in the wire form of lanes that run calls in other
    /// processes. The default writes nothing, for payloads whose frames hold the encoded values.
    /// Takes no lock that Python code can hold.
    fn encode(
        &self,
        _function: FunctionId,
        _finish: bool,
        _samples: &[u32],
        _sent: &mut SentConstants,
        _out: &mut Vec<u8>,
    ) {
    }

    /// `encode` for calls on pairs of samples, in which the values of these columns are the second
    /// one's.
    fn encode_pairs(
        &self,
        _function: FunctionId,
        _pairs: &[(u32, u32)],
        _second_columns: &[usize],
        _sent: &mut SentConstants,
        _out: &mut Vec<u8>,
    ) {
    }

    /// Calls `each` with the modules that unpickling the values of these calls imports.
    fn modules(&self, _function: FunctionId, _finish: bool, _each: &mut dyn FnMut(&str)) {}

    /// About how many bytes `encode` writes for one sample.
    fn bytes(&self, _function: FunctionId, _sample: u32) -> usize {
        0
    }

    /// The text of a sample in one column of a function's calls, for lanes that put texts into
    /// requests; `None` without a text. The column's name is then the kind of its texts.
    fn text(&self, _function: FunctionId, _column: usize, _sample: u32) -> Option<RawText<'_>> {
        None
    }

    /// Number of tokens in a call on this sample, for limits; `None` if the function does not count
    /// tokens.
    fn tokens(&self, _function: FunctionId, _sample: u32) -> Option<f64> {
        None
    }

    /// Keeps the values for calls on these samples for as long as a frame of them lives, if the
    /// payload drops samples whose cells have outcomes. `None` means that the payload itself is
    /// kept.
    fn hold(&self, _function: FunctionId, _finish: bool, _samples: &[u32]) -> Option<Box<dyn Payload>> {
        None
    }

    /// Writes bytes that identify a function's call on this sample: calls with the same bytes have
    /// the same values. False if the values have no identity.
    fn identity(&self, _function: FunctionId, _sample: u32, _out: &mut Vec<u8>) -> bool {
        false
    }

    /// Returns whether a call of a function may mix samples of this payload with samples of other
    /// payloads that return true and have the same names. Every value of such a call belongs to one
    /// sample, none to the batch.
    fn mixes(&self, _function: FunctionId) -> bool {
        false
    }

    /// Returns the payload itself, for lanes of the same crate, which take the values unchanged.
    fn as_any(&self) -> &dyn Any;
}

/// Receives payloads that have no holder any more.
#[derive(Default)]
pub(crate) struct PayloadRelease {
    /// Written once, before the first batch; without a listener payloads are dropped on the spot.
    listener: OnceLock<ReleaseListener>,
}

type ReleaseListener = Box<dyn Fn(Box<dyn Payload>) + Send + Sync>;

impl PayloadRelease {
    pub(crate) fn listen(&self, listener: impl Fn(Box<dyn Payload>) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }
}

struct ReleaseOnDrop {
    /// Taken by `drop`.
    payload: Option<Box<dyn Payload>>,
    release: Arc<PayloadRelease>,
}

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        if let (Some(listener), Some(payload)) = (self.release.listener.get(), self.payload.take()) {
            listener(payload);
        }
    }
}

/// A payload shared by its batch and frames (payload-1).
#[derive(Clone)]
pub struct SharedPayload(Arc<ReleaseOnDrop>);

impl SharedPayload {
    pub(crate) fn new(payload: Box<dyn Payload>, release: &Arc<PayloadRelease>) -> Self {
        Self(Arc::new(ReleaseOnDrop { payload: Some(payload), release: release.clone() }))
    }

    /// Returns the number of batches and frames that share it.
    #[must_use]
    pub fn owners(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// A payload that shows the values of this one in another way.
    pub(crate) fn shown_as<T: Payload>(&self, view: impl FnOnce(Self) -> T) -> Self {
        Self::new(Box::new(view(self.clone())), &self.0.release)
    }

    /// Keeps the values for calls on these samples for as long as a frame of them lives.
    pub(crate) fn hold(&self, function: FunctionId, finish: bool, samples: &[u32]) -> Self {
        self.part(function, finish, samples).unwrap_or_else(|| self.clone())
    }

    /// The part of it that is held for these samples; `None`: all of it is.
    pub(crate) fn part(&self, function: FunctionId, finish: bool, samples: &[u32]) -> Option<Self> {
        Some(Self::new(self.deref().hold(function, finish, samples)?, &self.0.release))
    }
}

impl Deref for SharedPayload {
    type Target = dyn Payload;

    fn deref(&self) -> &Self::Target {
        self.0.payload.as_deref().unwrap_or(&Gone)
    }
}

/// Stands for a payload that is being dropped, or that belongs to another batch; it is never read.
pub(crate) struct Gone;

impl Payload for Gone {
    fn as_any(&self) -> &dyn Any {
        self
    }
}
