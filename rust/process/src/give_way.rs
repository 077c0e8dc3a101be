//! Requests for room: if a pool can't start a worker, one idle worker of another pool leaves for
//! each request.

use std::sync::Arc;

use parking_lot::Mutex;

/// The requests of a lane.
#[derive(Default)]
pub(super) struct GiveWay {
    /// The requesting pools, each with a number. Written by requests and by leaving workers.
    requests: Mutex<(u64, Vec<(u64, usize)>)>,
}

/// A request, withdrawn when it is dropped.
pub(super) struct RoomRequest {
    way: Arc<GiveWay>,
    number: u64,
}

impl GiveWay {
    /// Requests room for a worker of this pool.
    pub(super) fn ask(self: &Arc<Self>, pool: usize) -> RoomRequest {
        let mut requests = self.requests.lock();
        requests.0 += 1;
        let number = requests.0;
        requests.1.push((number, pool));
        drop(requests);
        RoomRequest { way: self.clone(), number }
    }

    /// Accepts a request of another pool; false if there was none.
    pub(super) fn accept(&self, pool: usize) -> bool {
        let mut requests = self.requests.lock();
        let found = requests.1.iter().position(|(_, asks)| *asks != pool);
        found.map(|index| requests.1.remove(index)).is_some()
    }
}

impl Drop for RoomRequest {
    fn drop(&mut self) {
        self.way.requests.lock().1.retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_taken_on_once_by_another_pool() {
        let way = Arc::new(GiveWay::default());
        let request = way.ask(1);
        assert!(!way.accept(1) && way.accept(0) && !way.accept(0));
        drop(request);
        drop(way.ask(1));
        assert!(!way.accept(0), "it was withdrawn");
    }
}
