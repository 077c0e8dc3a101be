//! Pieces that wait for a lane, by session, and the frames that have not ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::call::Call;
use crate::function::FunctionId;

use super::hosting::Hosting;

/// Calls of a frame that go to a lane together.
pub(super) struct Piece {
    pub hosted: Arc<Hosting>,
    pub calls: Vec<Call>,
}

/// A frame that has not ended.
struct OpenFrame {
    hosted: Arc<Hosting>,
    /// Number of its pieces that wait or that a lane has.
    pieces: usize,
    begun: bool,
}

#[derive(Default)]
struct Session {
    frames: BTreeMap<u64, OpenFrame>,
    waiting: VecDeque<Piece>,
}

/// The sessions, in the order of their turns.
#[derive(Default)]
pub(super) struct PieceQueue {
    sessions: BTreeMap<u64, Session>,
    /// The session that had the last turn.
    last: u64,
    /// Pieces that lanes have, by function.
    with_lanes: BTreeMap<FunctionId, usize>,
    pub pumping: bool,
    pub closed: bool,
}

impl PieceQueue {
    /// Adds a frame, cut into pieces; false if the session already has a frame of this number.
    pub(super) fn add(&mut self, hosted: &Arc<Hosting>, pieces: Vec<Vec<Call>>) -> bool {
        let session = self.sessions.entry(hosted.session).or_default();
        if session.frames.contains_key(&hosted.id) {
            return false;
        }
        session.frames.insert(hosted.id, OpenFrame { hosted: hosted.clone(), pieces: pieces.len(), begun: false });
        session.waiting.extend(pieces.into_iter().map(|calls| Piece { hosted: hosted.clone(), calls }));
        true
    }

    /// Puts pieces of a frame back, before all others of its session.
    pub(super) fn put_back(&mut self, hosted: &Arc<Hosting>, pieces: Vec<Vec<Call>>) {
        let Some(session) = self.sessions.get_mut(&hosted.session) else { return };
        let Some(open) = session.frames.get_mut(&hosted.id) else { return };
        open.pieces += pieces.len();
        for calls in pieces.into_iter().rev() {
            session.waiting.push_front(Piece { hosted: hosted.clone(), calls });
        }
    }

    /// Returns the next piece of a `free` function, from the session whose turn has come. The flag
    /// is true for the first piece of a frame.
    pub(super) fn next(&mut self, mut free: impl FnMut(FunctionId) -> bool) -> Option<(Piece, bool)> {
        let after = self.sessions.range(self.last + 1..).map(|(id, _)| *id);
        let turns: Vec<u64> = after.chain(self.sessions.range(..=self.last).map(|(id, _)| *id)).collect();
        for id in turns {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            let Some(at) = session.waiting.iter().position(|work| free(work.hosted.function)) else { continue };
            let Some(work) = session.waiting.remove(at) else { continue };
            self.last = id;
            *self.with_lanes.entry(work.hosted.function).or_default() += 1;
            let begun = session.frames.get_mut(&work.hosted.id).map(|open| std::mem::replace(&mut open.begun, true));
            return Some((work, begun == Some(false)));
        }
        None
    }

    /// Pieces of a function that lanes have.
    pub(super) fn with_lanes(&self, function: FunctionId) -> usize {
        self.with_lanes.get(&function).copied().unwrap_or(0)
    }

    /// Records that a lane is done with a piece of a function.
    pub(super) fn left_lane(&mut self, function: FunctionId) {
        if let Some(pieces) = self.with_lanes.get_mut(&function) {
            *pieces = pieces.saturating_sub(1);
        }
    }

    /// Records that pieces of a frame are gone; true if they were the last.
    pub(super) fn piece_ended(&mut self, hosted: &Hosting, pieces: usize) -> bool {
        let Some(session) = self.sessions.get_mut(&hosted.session) else { return false };
        let Some(open) = session.frames.get_mut(&hosted.id) else { return false };
        open.pieces = open.pieces.saturating_sub(pieces);
        let ended = open.pieces == 0;
        if ended {
            session.frames.remove(&hosted.id);
            if session.frames.is_empty() {
                self.sessions.remove(&hosted.session);
            }
        }
        ended
    }

    /// Removes the waiting pieces of a frame, and returns their calls and number.
    pub(super) fn take_waiting(&mut self, hosted: &Hosting) -> (Vec<Call>, usize) {
        let Some(session) = self.sessions.get_mut(&hosted.session) else { return (Vec::new(), 0) };
        let (mut calls, mut pieces) = (Vec::new(), 0);
        session.waiting.retain_mut(|work| {
            let other = work.hosted.id != hosted.id;
            if !other {
                calls.append(&mut work.calls);
                pieces += 1;
            }
            other
        });
        (calls, pieces)
    }

    pub(super) fn get(&self, session: u64, frame: u64) -> Option<Arc<Hosting>> {
        self.sessions.get(&session)?.frames.get(&frame).map(|open| open.hosted.clone())
    }

    /// Returns the frames of a session, or of all.
    pub(super) fn frames_of(&self, session: Option<u64>) -> Vec<Arc<Hosting>> {
        let sessions = self.sessions.iter().filter(|(id, _)| session.is_none_or(|wanted| wanted == **id));
        sessions.flat_map(|(_, session)| session.frames.values().map(|open| open.hosted.clone())).collect()
    }

    pub(super) fn frames(&self) -> usize {
        self.sessions.values().map(|session| session.frames.len()).sum()
    }
}
