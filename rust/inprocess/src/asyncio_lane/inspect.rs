//! Snapshots of the calls on event loops.

use guerdon_core::frame::Frame;
use guerdon_core::in_flight::{InFlight, Location, Stack};

use crate::asyncio_lane::event_loop::EventLoop;

impl EventLoop<Frame> {
    /// Returns a snapshot of the calls on its loops.
    pub fn inspect(&self, now_ns: u64) -> Vec<InFlight> {
        let (in_flight, in_setup, newest) = {
            let state = self.state.lock();
            (state.in_flight.values().cloned().collect::<Vec<_>>(), state.in_setup.clone(), state.generation)
        };
        let mut all = Vec::new();
        for calls in in_flight {
            let (generation, frame) = (calls.generation(), calls.id());
            // A running `setup()` is recorded for the newest loop only.
            let setup_ns = in_setup.get(&calls.function()).copied().filter(|_| generation == newest);
            let snapshot = |(call, number)| {
                let name = self.name().to_owned();
                let location = Location::Loop { index: self.index, name, generation, frame, number };
                InFlight { call, location, stack: Stack::AskPython }
            };
            all.extend(calls.inspect(now_ns, setup_ns).into_iter().map(snapshot));
        }
        all
    }
}
