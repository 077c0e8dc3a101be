//! Calls of a user's function that makes one score of the scores of a panel's members.
//!
//! Its only value is a list: for each member, in order, a score, or None if it failed or abstained.

use std::any::Any;
use std::collections::BTreeMap;

use crate::batch::Batch;
use crate::function::FunctionId;
use crate::payload::Payload;
use crate::sync::Mutex;
use guerdon_wire::columns::ColumnsWriter;
use guerdon_wire::sent_constants::SentConstants;

/// The scores of the members by sample. Written when a call is requested.
#[derive(Default)]
struct Scores(Mutex<BTreeMap<u32, Vec<Option<f64>>>>);

impl Scores {
    /// Returns the pickle of a list that holds a list of the scores of each sample.
    fn pickle(&self, samples: &[u32]) -> Vec<u8> {
        let mut out = b"\x80\x02](](".to_vec(); // protocol 2, the list of columns, its column
        let kept = self.0.lock();
        for sample in samples {
            out.extend_from_slice(b"](");
            for score in kept.get(sample).into_iter().flatten() {
                match score {
                    Some(score) => {
                        out.push(b'G');
                        out.extend_from_slice(&score.to_be_bytes());
                    }
                    None => out.push(b'N'),
                }
            }
            out.push(b'e');
        }
        out.extend_from_slice(b"ee.");
        out
    }
}

impl Payload for Scores {
    fn encode(&self, _: FunctionId, _: bool, samples: &[u32], _: &mut SentConstants, out: &mut Vec<u8>) {
        let pickle = self.pickle(samples);
        ColumnsWriter::new(out, samples.len(), 1).pickled(&[0], |row| (0, row), |_| &pickle);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Values for the calls of a reduce, without scores yet.
pub(super) fn scores() -> Box<dyn Payload> {
    Box::new(Scores::default())
}

/// Keeps the scores of a sample, before its call is queued.
#[expect(clippy::cast_possible_truncation, reason = "calls have their samples as u32")]
pub(super) fn keep_scores(calls: &Batch, sample: usize, scores: &[Option<f64>]) {
    calls.with_payload(|payload| {
        if let Some(Scores(kept)) = payload.as_any().downcast_ref() {
            kept.lock().insert(sample as u32, scores.to_vec());
        }
    });
}
