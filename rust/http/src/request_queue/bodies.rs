//! Bodies of a call's requests: its function's template with its texts, and in another attempt the
//! fault of the last answer.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::body::{BodyTemplate, JSON, Text};
use crate::call_store::CallStore;
use crate::fleet::RequestKey;
use crate::in_flight::InFlightFrame;
use crate::long_body::{LongBody, TextSource};
use crate::meter::Meter;
use crate::repair;
use crate::request_body::RequestBody;

/// Length from which on a body is written while it is sent.
const LONG_BODY: usize = 32 << 10;

/// See the module.
pub struct Bodies {
    template: Arc<BodyTemplate>,
    function: usize,
    /// Answers that could not be read, for the next attempts of their calls. Written by requests
    /// that end.
    repairs: Mutex<CallStore<Vec<u8>>>,
}

impl Bodies {
    pub fn new(template: BodyTemplate, function: usize) -> Self {
        let repairs = Mutex::new(CallStore::new(repair::MOST_BYTES));
        Self { template: Arc::new(template), function, repairs }
    }

    /// The body of a request for these samples; `None`: their texts were not captured.
    pub fn body(
        &self,
        key: RequestKey,
        frame_ref: &Arc<InFlightFrame>,
        samples: &[(usize, u32)],
    ) -> Option<RequestBody> {
        let template = self.template(key);
        let texts = self.texts(frame_ref, samples);
        let text = |column, place| texts.text(column, place);
        let parts = template.parts(samples.len(), &text)?;
        if template.bytes(&parts, &text, false) < LONG_BODY {
            return Some(template.fill(&parts, &text).into());
        }
        Some(RequestBody::Long(LongBody::new(template, Box::new(texts), parts).into()))
    }

    /// The body of a request as one text.
    pub fn text(&self, frame_ref: &Arc<InFlightFrame>, samples: &[(usize, u32)]) -> Option<String> {
        let texts = self.texts(frame_ref, samples);
        let text = |column, place| texts.text(column, place);
        let parts = self.template.parts(samples.len(), &text)?;
        String::from_utf8(self.template.fill(&parts, &text)).ok()
    }

    fn texts(&self, frame_ref: &Arc<InFlightFrame>, samples: &[(usize, u32)]) -> FrameTexts {
        FrameTexts { frame_ref: frame_ref.clone(), function: self.function, samples: samples.to_vec() }
    }

    /// The template of a request, in another attempt with the fault of the last answer.
    fn template(&self, key: RequestKey) -> Arc<BodyTemplate> {
        if key.attempt > 1
            && self.template.takes_repair()
            && let Some(messages) = self.repairs.lock().get((key.own_batch, key.sample))
        {
            return Arc::new(self.template.repaired(messages));
        }
        self.template.clone()
    }

    /// Keeps an answer that could not be read until there is a score.
    pub fn keep_repair(
        &self,
        frame_ref: &InFlightFrame,
        call: usize,
        key: RequestKey,
        scored: bool,
        meter: &Meter<'_>,
    ) {
        if (scored && key.attempt == 1) || !self.template.takes_repair() {
            return;
        }
        if scored {
            self.repairs.lock().take((key.own_batch, key.sample));
        } else if let Some(messages) = meter.repair()
            && let Some((batch, sample)) = frame_ref.place(call)
        {
            let bytes = messages.len();
            self.repairs.lock().put(&batch, sample, messages, bytes);
        }
    }

    /// Drops answers of batches that have ended; whether any is left.
    pub fn drop_ended(&self) -> bool {
        let mut repairs = self.repairs.lock();
        repairs.take_ended();
        !repairs.is_empty()
    }

    /// Returns whether answers of calls that may be tried again are kept.
    pub fn keeps_repairs(&self) -> bool {
        !self.repairs.lock().is_empty()
    }
}

/// The texts of a frame's samples.
struct FrameTexts {
    frame_ref: Arc<InFlightFrame>,
    function: usize,
    /// Those of a request, in order.
    samples: Vec<(usize, u32)>,
}

impl TextSource for FrameTexts {
    fn text(&self, column: usize, place: usize) -> Option<Text<'_>> {
        let (share, sample) = *self.samples.get(place)?;
        let raw = self.frame_ref.payload(share)?.text(self.function, column, sample)?;
        // The names are the same in all shares of a frame.
        let names = self.frame_ref.payload(0)?.names(self.function, false)?;
        Some(Text { raw, json: names.get(column).is_some_and(|name| name == JSON) })
    }
}
