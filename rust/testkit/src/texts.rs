//! A column of texts in place of Python's, for lanes that read texts.

use std::any::Any;

use guerdon_core::function::FunctionId;
use guerdon_core::payload::Payload;
use guerdon_wire::sent_constants::SentConstants;
use guerdon_wire::text::{RawText, TextKind};

/// One column of ASCII texts, a text a sample.
pub struct Texts {
    texts: Vec<String>,
    names: Vec<String>,
}

impl Texts {
    #[must_use]
    pub fn of(texts: &[String]) -> Self {
        Self { texts: texts.to_vec(), names: vec!["text".to_owned()] }
    }
}

impl Payload for Texts {
    fn names(&self, _: FunctionId, _finish: bool) -> Option<&[String]> {
        Some(&self.names)
    }

    fn encode(&self, _: FunctionId, _finish: bool, _samples: &[u32], _: &mut SentConstants, _out: &mut Vec<u8>) {}

    fn bytes(&self, _: FunctionId, _sample: u32) -> usize {
        0
    }

    fn text(&self, _: FunctionId, _column: usize, sample: u32) -> Option<RawText<'_>> {
        Some(RawText { kind: TextKind::Ascii, bytes: self.texts.get(sample as usize)?.as_bytes() })
    }

    fn mixes(&self, _: FunctionId) -> bool {
        true
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
