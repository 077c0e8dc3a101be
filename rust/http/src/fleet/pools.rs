//! The connections of all functions: those that go to one server in the same way share a pool.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::connector::Connector;
use crate::endpoint::Endpoint;
use crate::endpoint_error::EndpointError;
use crate::fd_limit::Descriptors;
use crate::pool::{Pool, connections};

/// Returns the usual number of requests in flight to one of the endpoints: twice its share, since
/// idle connections stay for a while where load moves on.
fn usual(requests: usize, endpoints: usize) -> usize {
    requests.min((2 * requests).div_ceil(endpoints.max(1)))
}

/// Returns the connections to the endpoints of one function, with `requests` requests in flight.
pub fn connections_to<'a>(endpoints: impl ExactSizeIterator<Item = &'a Endpoint>, requests: usize) -> usize {
    let usual = usual(requests, endpoints.len());
    endpoints.map(|one| connections(one, usual)).sum()
}

/// See the module.
pub struct Pools {
    known: Mutex<Vec<KnownServer>>,
    descriptors: Descriptors,
}

struct KnownServer {
    endpoint: Endpoint,
    /// Requests in flight to it at most, of all functions that use it from the start, and the
    /// connections that it has when all endpoints are up; 0 for one that came later.
    requests: usize,
    usual: usize,
    /// Ends with the last fleet that uses it. Written by `get`.
    pool: Weak<Pool>,
}

impl Pools {
    /// Makes pools for endpoints that are known from the start: each with the requests in flight of
    /// its function, and the number of the function's endpoints.
    pub fn new<'a>(planned: impl IntoIterator<Item = (&'a Endpoint, usize, usize)>) -> Self {
        let mut known: Vec<KnownServer> = Vec::new();
        for (endpoint, requests, endpoints) in planned {
            let usual = usual(requests, endpoints);
            match known.iter_mut().find(|one| one.endpoint.shares_pool(endpoint)) {
                Some(one) => (one.requests, one.usual) = (one.requests + requests, one.usual + usual),
                None => known.push(KnownServer { endpoint: endpoint.clone(), requests, usual, pool: Weak::new() }),
            }
        }
        let all = known.iter().map(|one| connections(&one.endpoint, one.usual)).sum();
        Self { known: Mutex::new(known), descriptors: Descriptors::new(all) }
    }

    pub const fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// Refuses an endpoint behind a proxy: it would resolve the name by itself.
    pub fn refuse_proxy(endpoint: &Endpoint) -> Result<(), EndpointError> {
        if Connector::has_proxy(&endpoint.uri) {
            return Err(EndpointError::ResolveBehindProxy(endpoint.host()));
        }
        Ok(())
    }

    /// The pool of an endpoint; a new server's pool is for `requests` requests in flight.
    pub fn get(&self, endpoint: &Endpoint, requests: usize) -> Result<Arc<Pool>, EndpointError> {
        let mut known = self.known.lock();
        // Servers that came at run time and left.
        known.retain(|one| one.usual > 0 || one.pool.strong_count() > 0);
        let place = known.iter().position(|one| one.endpoint.shares_pool(endpoint));
        if let Some(pool) = place.and_then(|place| known[place].pool.upgrade()) {
            return Ok(pool);
        }
        let requests = place.map_or(requests, |place| known[place].requests);
        let pool = Arc::new(Pool::new(endpoint, requests)?);
        match place {
            Some(place) => known[place].pool = Arc::downgrade(&pool),
            None => {
                known.push(KnownServer { endpoint: endpoint.clone(), requests, usual: 0, pool: Arc::downgrade(&pool) });
            }
        }
        Ok(pool)
    }
}
