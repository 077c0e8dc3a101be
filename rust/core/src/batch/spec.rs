//! Specification of a batch.

use crate::delivery::Delivery;
use crate::payload::Payload;

/// Specification of a batch.
pub struct BatchSpec {
    pub samples: usize,
    /// Samples of one prompt; divides `samples`.
    pub group_size: usize,
    pub payload: Box<dyn Payload>,
    /// Nanoseconds for the whole batch.
    pub batch_timeout_ns: Option<u64>,
    /// True if samples are added later, until `Scheduler::finish`; such a batch begins empty.
    pub streamed: bool,
    /// Bound of a streamed batch's pending samples: those in full groups that are not complete.
    /// More samples then have to wait for room.
    pub max_pending: Option<usize>,
    pub delivery: Delivery,
    /// True if observers need the usage of each sample.
    pub usage_by_sample: bool,
    /// The training step of the batch, if one was given; for observers.
    pub step: Option<u64>,
}

impl BatchSpec {
    /// A batch that is submitted whole, without a timeout and without early delivery.
    #[must_use]
    pub fn whole(samples: usize, group_size: usize, payload: Box<dyn Payload>) -> Self {
        let (batch_timeout_ns, streamed, max_pending, delivery) = (None, false, None, Delivery::default());
        Self {
            samples,
            group_size,
            payload,
            batch_timeout_ns,
            streamed,
            max_pending,
            delivery,
            usage_by_sample: false,
            step: None,
        }
    }
}
