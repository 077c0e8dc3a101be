//! Texts and chosen columns of rows, which the engine does not know: somebody else reads them.

use guerdon_core::payload::SharedPayload;
use serde_json::Value;

/// Form of a column of texts, in all of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Strings as they are.
    Text,
    /// Each value as JSON, strings too.
    Json,
}

impl Kind {
    /// Returns the name in the key-value metadata of a part.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// One column of some samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextColumn {
    pub kind: Kind,
    /// One a sample; `None` if there is none.
    pub values: Vec<Option<String>>,
}

impl TextColumn {
    /// A column without values.
    #[must_use]
    pub fn empty(samples: usize) -> Self {
        Self { kind: Kind::Text, values: vec![None; samples] }
    }

    /// The same values as JSON.
    pub(crate) fn into_json(self) -> Self {
        let json = |text: String| Value::String(text).to_string();
        match self.kind {
            Kind::Json => self,
            Kind::Text => {
                Self { kind: Kind::Json, values: self.values.into_iter().map(|value| value.map(json)).collect() }
            }
        }
    }
}

/// Reads the texts of samples out of what their calls are made of.
pub trait TextSource: Send + Sync {
    /// One column for each that the journal has, of these samples; `None` where they can't be read
    /// any more. Called on the writer's thread alone; may wait.
    fn read(&self, payload: &SharedPayload, samples: &[u32]) -> Option<Vec<TextColumn>>;
}
