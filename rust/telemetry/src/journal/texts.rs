//! Texts and chosen columns of rows. The engine has no access to them; a `TextSource` reads them.

use guerdon_core::payload::SharedPayload;
use serde::Serialize;
use serde_json::Value;

/// Form of a column of texts, the same in all rows of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Strings as they are.
    Text,
    /// Each value as JSON, strings too.
    Json,
}

/// One column of some samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextColumn {
    pub kind: Kind,
    /// One per sample.
    pub values: Vec<Option<String>>,
}

impl TextColumn {
    /// A column without values.
    #[must_use]
    pub fn empty(samples: usize) -> Self {
        Self { kind: Kind::Text, values: vec![None; samples] }
    }

    /// Makes JSON of its strings.
    pub(crate) fn make_json(&mut self) {
        self.kind = Kind::Json;
        for value in self.values.iter_mut().flatten() {
            *value = Value::String(std::mem::take(value)).to_string();
        }
    }
}

/// Reads the texts of samples from the values of their calls.
pub trait TextSource: Send + Sync {
    /// Returns each text column of the journal for these samples; `None` if the values are gone.
    /// Called on the writer's thread only; may wait.
    fn read(&self, payload: &SharedPayload, samples: &[u32]) -> Option<Vec<TextColumn>>;
}
