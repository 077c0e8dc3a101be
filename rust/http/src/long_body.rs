//! A long body of a request, written in pieces while it is sent: thousands of them in flight take
//! no more memory than their texts, which Python has anyway.
//!
//! Its length is known before the first byte, and each writing gives the same bytes.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::body::{BodyTemplate, Piece, Text};
use crate::escape::{escape_some, length, plain_some};

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
    parts: Box<[BodyPart]>,
    length: usize,
}

/// A part that is written without a choice: pieces of the template, by sample.
#[derive(Clone, Copy)]
enum BodyPart {
    /// A piece of the template, or one within it.
    Template(usize, Option<usize>),
    Mark(u8),
    Escaped(usize, usize),
    Json(usize, usize),
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
    /// Makes a body for these samples; `None` if a text is not there.
    pub fn new(template: Arc<BodyTemplate>, texts: Box<dyn TextSource>, samples: usize) -> Option<Self> {
        let mut parts = Vec::with_capacity(template.pieces.len());
        for (index, piece) in template.pieces.iter().enumerate() {
            match piece {
                Piece::Each(pieces) => {
                    for place in 0..samples {
                        if place > 0 {
                            parts.push(BodyPart::Mark(b','));
                        }
                        for (inner, piece) in pieces.iter().enumerate() {
                            add(&mut parts, piece, (index, Some(inner)), place, &*texts)?;
                        }
                    }
                }
                piece => add(&mut parts, piece, (index, None), 0, &*texts)?,
            }
        }
        let mut body = Self { template, texts, parts: parts.into(), length: 0 };
        body.length = body.parts.iter().map(|part| body.length_of(*part)).sum::<Option<usize>>()?;
        Some(body)
    }

    pub const fn len(&self) -> usize {
        self.length
    }

    fn of_template(&self, index: usize, inner: Option<usize>) -> &[u8] {
        let piece = self.template.pieces.get(index);
        let piece = match (piece, inner) {
            (Some(Piece::Each(pieces)), Some(inner)) => pieces.get(inner),
            (piece, _) => piece,
        };
        if let Some(Piece::Raw(bytes)) = piece { bytes } else { &[] }
    }

    fn length_of(&self, part: BodyPart) -> Option<usize> {
        Some(match part {
            BodyPart::Template(index, inner) => self.of_template(index, inner).len(),
            BodyPart::Mark(_) => 1,
            BodyPart::Escaped(column, place) => length(self.texts.text(column, place)?.raw, true),
            BodyPart::Json(column, place) => length(self.texts.text(column, place)?.raw, false),
        })
    }

    /// The next piece; `None` at the end.
    pub fn next(&self, written: &mut WrittenLength) -> Option<Bytes> {
        let mut out = Vec::with_capacity(CHUNK + 16);
        while out.len() < CHUNK {
            let Some(part) = self.parts.get(written.part) else { break };
            let left = match *part {
                BodyPart::Template(index, inner) => {
                    let rest = &self.of_template(index, inner)[written.units..];
                    let room = rest.len().min(CHUNK - out.len());
                    out.extend_from_slice(&rest[..room]);
                    (room < rest.len()).then_some(written.units + room)
                }
                BodyPart::Mark(mark) => {
                    out.push(mark);
                    None
                }
                BodyPart::Escaped(column, place) => {
                    escape_some(self.texts.text(column, place)?.raw, written.units, CHUNK, &mut out)
                }
                BodyPart::Json(column, place) => {
                    plain_some(self.texts.text(column, place)?.raw, written.units, CHUNK, &mut out)
                }
            };
            match left {
                Some(units) => written.units = units,
                None => *written = WrittenLength { part: written.part + 1, units: 0 },
            }
        }
        (!out.is_empty()).then(|| out.into())
    }
}

fn add(
    parts: &mut Vec<BodyPart>,
    piece: &Piece,
    (index, inner): (usize, Option<usize>),
    place: usize,
    texts: &dyn TextSource,
) -> Option<()> {
    match piece {
        Piece::Raw(_) => parts.push(BodyPart::Template(index, inner)),
        Piece::Text(column) => parts.push(BodyPart::Escaped(*column, place)),
        Piece::Value(column) if texts.text(*column, place)?.json => parts.push(BodyPart::Json(*column, place)),
        Piece::Value(column) => {
            parts.extend([BodyPart::Mark(b'"'), BodyPart::Escaped(*column, place), BodyPart::Mark(b'"')]);
        }
        Piece::Repair => {}
        Piece::Each(_) => return None, // a list of lists is in no template
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use guerdon_core::text::TextKind;
    use proptest::prelude::*;

    use super::*;
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
            let whole = {
                let source = Columns(columns.clone());
                let places: Vec<usize> = (0..long.len()).collect();
                template().fill(&places, |column, place| source.text(column, place).map(|text| Text { json: text.json, raw: {
                    let (kind, bytes) = &columns[column][place];
                    raw(*kind, bytes)
                } })).unwrap()
            };
            let body = LongBody::new(template(), Box::new(Columns(columns)), long.len()).unwrap();
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
        assert!(LongBody::new(template(), Box::new(Columns(Vec::new())), 1).is_none());
    }
}
