//! A long body of a request, written in pieces while it is sent: thousands of them in flight take
//! no more memory than their texts, which Python has anyway.
//!
//! Its length is known before the first byte, and each writing gives the same bytes.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::body::{BodyPart, BodyTemplate, Text};

/// Bytes that are written at a time.
const CHUNK: usize = 16 << 10;

/// Source of a body's texts; it keeps them.
pub trait TextSource: Send + Sync {
    /// The text of a column, of the sample in this place in the request.
    fn text(&self, column: usize, place: usize) -> Option<Text<'_>>;
}

/// See the module.
pub struct LongBody {
    template: Arc<BodyTemplate>,
    texts: Box<dyn TextSource>,
    parts: Vec<BodyPart>,
    length: usize,
}

/// Length of a body's written part.
#[derive(Clone, Copy, Debug, Default)]
pub struct WrittenLength {
    part: usize,
    /// Units of the part.
    units: usize,
}

impl fmt::Debug for LongBody {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "LongBody({} bytes)", self.length)
    }
}

impl LongBody {
    /// Makes a body of these parts, which the template has made.
    pub fn new(template: Arc<BodyTemplate>, texts: Box<dyn TextSource>, parts: Vec<BodyPart>) -> Self {
        let length = template.bytes(&parts, &|column, place| texts.text(column, place), true);
        Self { template, texts, parts, length }
    }

    pub const fn len(&self) -> usize {
        self.length
    }

    /// The next piece; `None` at the end.
    pub fn next(&self, written: &mut WrittenLength) -> Option<Bytes> {
        let text = |column, place| self.texts.text(column, place);
        let mut out = Vec::with_capacity(CHUNK + 16);
        while out.len() < CHUNK {
            let Some(part) = self.parts.get(written.part) else { break };
            match self.template.write(*part, written.units, CHUNK, &text, &mut out) {
                Some(units) => written.units = units,
                None => *written = WrittenLength { part: written.part + 1, units: 0 },
            }
        }
        (!out.is_empty()).then(|| out.into())
    }
}

#[cfg(test)]
mod tests {
    use guerdon_wire::text::TextKind;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::body::Piece;
    use crate::body::tests::{laid_out, raw};

    struct Columns(Vec<Vec<(TextKind, Vec<u8>)>>);

    impl TextSource for Columns {
        fn text(&self, column: usize, place: usize) -> Option<Text<'_>> {
            let (kind, bytes) = self.0.get(column)?.get(place)?;
            Some(Text { raw: raw(*kind, bytes), json: column == 1 })
        }
    }

    fn template() -> Arc<BodyTemplate> {
        let each =
            vec![Piece::Raw(b"{\"t\":".to_vec()), Piece::Value(0), Piece::Raw(b",\"j\":".to_vec()), Piece::Value(1)];
        let pieces = vec![
            Piece::Raw(vec![b' '; 20_000]),
            Piece::Raw(b"\"".to_vec()),
            Piece::Text(0),
            Piece::Raw(b"\",[".to_vec()),
            Piece::Each([each, vec![Piece::Raw(b"}".to_vec())]].concat()),
            Piece::Raw(b"]".to_vec()),
        ];
        Arc::new(BodyTemplate { pieces })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// A body in pieces equals the one made at once: the same bytes, and as many as were
        /// promised.
        #[test]
        fn a_body_in_pieces_is_the_body(
            texts in prop::collection::vec(("\\PC{0,40}|[\u{0}-\u{ff}]{0,40}|[ -~\n\"]{0,40}|\\p{any}{0,40}", 1_usize..3000), 1..4)
        ) {
            let long: Vec<String> = texts.iter().map(|(text, times)| text.repeat(*times)).collect();
            let numbers = (0..long.len()).map(|place| laid_out(&format!("[{place}, \"é\"]"))).collect();
            let columns = vec![long.iter().map(|text| laid_out(text)).collect(), numbers];
            let source = Columns(columns);
            let text = |column, place| source.text(column, place);
            let parts = template().parts(long.len(), &text).unwrap();
            let whole = template().fill(&parts, &text);
            let each: Vec<Value> = long.iter().enumerate().map(|(at, text)| json!({"t": text, "j": [at, "é"]})).collect();
            let decoded: Value = serde_json::from_slice(&[b"[".as_slice(), &whole, b"]"].concat()).unwrap();
            prop_assert!(decoded == json!([long[0], each]));
            let body = LongBody::new(template(), Box::new(Columns(source.0.clone())), parts);
            for _ in 0..2 {
                let (mut written, mut sent) = (WrittenLength::default(), Vec::new());
                while let Some(piece) = body.next(&mut written) {
                    prop_assert!(piece.len() <= CHUNK + 16 && !piece.is_empty());
                    sent.extend_from_slice(&piece);
                }
                prop_assert_eq!(body.len(), sent.len());
                prop_assert!(sent == whole);
            }
        }
    }

    #[test]
    fn a_text_that_is_not_there() {
        assert!(template().parts(1, &|_, _| None).is_none());
    }
}
