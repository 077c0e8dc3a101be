//! Messages to a judge after an answer that can't be read: its answer, then the fault.
//!
//! - One answer a call is kept, from one attempt to the next, and replaced by the next one.
//! - None outlives its batch.
//! - Answers are kept in a bounded space: the oldest call's is dropped, and that call is asked
//!   again in the same words.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use guerdon_core::batch::Batch;

/// Longest part of an answer that is sent back, in bytes: its end.
const LONGEST_ANSWER: usize = 4 << 10;
/// Most bytes kept for all calls of a function.
const MOST_BYTES: usize = 8 << 20;

/// A call: its batch, and its sample there.
type CallId = (u64, usize);

/// See the module.
#[derive(Debug, Default)]
pub struct Repairs {
    messages: BTreeMap<CallId, Vec<u8>>,
    /// The batches of these calls.
    batches: BTreeMap<u64, Weak<Batch>>,
    /// The oldest first; calls that are gone from `messages` may still be here.
    order: VecDeque<CallId>,
    bytes: usize,
}

impl Repairs {
    /// The messages for a call's next attempt.
    pub fn get(&self, call: CallId) -> Option<&[u8]> {
        self.messages.get(&call).map(Vec::as_slice)
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn put(&mut self, batch: &Arc<Batch>, sample: usize, messages: Vec<u8>) {
        self.batches.entry(batch.id()).or_insert_with(|| Arc::downgrade(batch));
        self.keep((batch.id(), sample), messages);
    }

    fn keep(&mut self, call: CallId, messages: Vec<u8>) {
        self.bytes += messages.len();
        match self.messages.insert(call, messages) {
            Some(before) => self.bytes -= before.len(),
            None => self.order.push_back(call),
        }
        while self.bytes > MOST_BYTES || self.order.len() > 2 * self.messages.len() + 64 {
            let Some(oldest) = self.order.pop_front() else { break };
            self.remove(oldest);
        }
    }

    /// Forgets a call that has its score.
    pub fn remove(&mut self, call: CallId) {
        if let Some(messages) = self.messages.remove(&call) {
            self.bytes -= messages.len();
        }
    }

    /// Forgets the calls of batches that have ended; whether any are left.
    pub fn drop_ended(&mut self) -> bool {
        if self.batches.is_empty() {
            return false;
        }
        let messages = &self.messages;
        self.batches.retain(|id, batch| {
            let waits = messages.range((*id, 0)..=(*id, usize::MAX)).next().is_some();
            waits && batch.upgrade().is_some_and(|batch| !batch.is_done())
        });
        let Self { messages, batches, order, bytes } = self;
        messages.retain(|(batch, _), _| batches.contains_key(batch));
        order.retain(|call| messages.contains_key(call));
        *bytes = messages.values().map(Vec::len).sum();
        !messages.is_empty()
    }
}

/// The messages behind those of the request: the judge's answer, and what to do about it.
pub fn messages(answer: &str, advice: &str) -> Vec<u8> {
    let mut from = answer.len().saturating_sub(LONGEST_ANSWER);
    while !answer.is_char_boundary(from) {
        from += 1;
    }
    // Servers refuse an assistant's message without text.
    let answer = if answer.trim().is_empty() { "(no answer)" } else { &answer[from..] };
    let of = |role: &str, content: &str| serde_json::json!({ "role": role, "content": content }).to_string();
    format!(",{},{}", of("assistant", answer), of("user", advice)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_follow_others_in_a_list() {
        let list = [b"[0".to_vec(), messages("é\"".repeat(4000).as_str(), "Again"), b"]".to_vec()].concat();
        let found: serde_json::Value = serde_json::from_slice(&list).unwrap();
        assert_eq!((&found[1]["role"], &found[2]["content"]), (&"assistant".into(), &"Again".into()));
        let sent = found[1]["content"].as_str().unwrap();
        assert!(sent.len() <= LONGEST_ANSWER && sent.ends_with("é\""));
        assert!(String::from_utf8(messages(" ", "Again")).unwrap().contains("(no answer)"));
    }

    #[test]
    fn kept_entries_are_bounded() {
        let mut repairs = Repairs::default();
        for call in 0..10_000 {
            repairs.keep((1, call), vec![b'x'; 4000]);
            repairs.keep((1, call), vec![b'y'; 2000]);
            if call % 2 == 0 {
                repairs.remove((1, call));
            }
        }
        assert!(repairs.bytes <= MOST_BYTES);
        assert_eq!(repairs.bytes, repairs.messages.values().map(Vec::len).sum::<usize>());
        assert!(repairs.order.len() <= 2 * repairs.messages.len() + 64);
        assert_eq!(repairs.get((1, 9999)).map(<[u8]>::len), Some(2000));
        assert!(repairs.get((1, 1)).is_none(), "the oldest is gone");
    }
}
