//! Calls of a user's function that makes one score of the scores of a panel's members.
//!
//! Its only value is a list: for each member, in order, a score, or None if it failed or abstained.
//! It is written from the cells of the member calls, which have all ended.

use std::any::Any;
use std::sync::Arc;

use crate::batch::Batch;
use crate::function::FunctionId;
use crate::member_call::MemberCall;
use crate::outcome::Status;
use crate::payload::Payload;
use crate::scheduler::state::{SchedulerCore, SchedulerState};
use guerdon_wire::columns::ColumnsWriter;
use guerdon_wire::sent_constants::SentConstants;

struct Scores {
    /// The batch of each member's calls, and the batch of its parser's calls.
    members: Vec<(Arc<Batch>, Option<Arc<Batch>>)>,
}

impl Scores {
    /// Appends the pickle of a list that holds a list of the scores of each sample.
    fn pickle(&self, samples: &[u32]) -> Vec<u8> {
        let mut out = b"\x80\x02](](".to_vec(); // protocol 2, the list of columns, its column
        for sample in samples {
            out.extend_from_slice(b"](");
            for (own, parsed) in &self.members {
                let score = score_in(own, *sample).or_else(|| score_in(parsed.as_ref()?, *sample));
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

/// The score of a sample in a batch of member calls; a judge whose answers a parser reads has none.
fn score_in(batch: &Batch, sample: u32) -> Option<f64> {
    let (outcome, _) = batch.grid().read(sample as usize, batch.grid().first_function())?;
    (outcome.status == Status::Ok).then_some(outcome.value)
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

impl SchedulerCore {
    /// Returns the values of the calls in this slot: the scores in the slots before it.
    pub(super) fn scores(
        &self,
        state: &mut SchedulerState,
        batch: &Arc<Batch>,
        leader: FunctionId,
        slot: usize,
    ) -> Box<dyn Payload> {
        let mut members = Vec::with_capacity(slot);
        for slot in 0..slot {
            let id = self.member_batch(batch.id(), leader, slot);
            let Some(own) = state.works.get(id).map(|work| work.batch.clone()) else { continue };
            let call = MemberCall { function: own.grid().first_function(), sample: 0, slot };
            // Made already if the judge has an answer to any sample.
            let parsed = self.parser_call(leader, call).and_then(|call| self.members(state, batch, call));
            members.push((own, parsed));
        }
        Box::new(Scores { members })
    }
}
