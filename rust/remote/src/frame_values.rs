//! The values of a frame's samples, in the message in which they arrived.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use guerdon_core::function::FunctionId;
use guerdon_core::payload::Payload;
use guerdon_wire::encoded_values::EncodedValues;
use guerdon_wire::sent_constants::SentConstants;

/// See the module.
pub struct FrameValues {
    message: Arc<Vec<u8>>,
    /// Position in the message.
    place: Range<usize>,
    rows: usize,
    has_constants: bool,
    modules: Vec<String>,
    names: Option<Vec<String>>,
}

impl FrameValues {
    /// Reads the values of `rows` samples; `None` if they are malformed.
    pub(crate) fn new(
        message: Arc<Vec<u8>>,
        place: Range<usize>,
        rows: usize,
        names: Option<Vec<String>>,
    ) -> Option<Self> {
        let values = EncodedValues::read(message.get(place.clone())?, rows)?;
        let (has_constants, mut modules) = (values.has_constants(), Vec::new());
        values.modules(&mut |name| modules.push(name.to_owned()));
        Some(Self { message, place, rows, has_constants, modules, names })
    }

    /// All values, in the encoded form.
    #[must_use]
    pub fn encoded(&self) -> &[u8] {
        &self.message[self.place.clone()]
    }

    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }
}

impl Payload for FrameValues {
    fn names(&self, _: FunctionId, _: bool) -> Option<&[String]> {
        self.names.as_deref()
    }

    fn encode(&self, _: FunctionId, _: bool, samples: &[u32], sent: &mut SentConstants, out: &mut Vec<u8>) {
        if !self.has_constants
            && samples.len() == self.rows
            && samples.iter().zip(0..).all(|(sample, row)| *sample == row)
        {
            out.extend_from_slice(self.encoded());
        } else if let Some(values) = EncodedValues::read(self.encoded(), self.rows) {
            values.encode(samples, sent, out);
        }
    }

    fn modules(&self, _: FunctionId, _: bool, each: &mut dyn FnMut(&str)) {
        self.modules.iter().for_each(|name| each(name));
    }

    fn bytes(&self, _: FunctionId, _: u32) -> usize {
        self.place.len() / self.rows.max(1)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
