//! One endpoint of a fleet: its address and its connections.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::endpoint::Endpoint;
use crate::pool::Pool;

/// See the module.
pub struct Member {
    endpoint: Endpoint,
    pool: Arc<Pool>,
    /// Permits to read long responses, which bound the memory, of all endpoints of a function: one
    /// with long answers does not hold up others. Taken by `request`.
    long_responses: Arc<Semaphore>,
    /// Its name in dumps.
    host: Arc<str>,
}

impl Member {
    pub fn new(endpoint: Endpoint, pool: Arc<Pool>, long_responses: Arc<Semaphore>) -> Self {
        let host = endpoint.host().into();
        Self { endpoint, pool, long_responses, host }
    }

    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    pub fn long_responses(&self) -> &Semaphore {
        &self.long_responses
    }

    pub const fn host(&self) -> &Arc<str> {
        &self.host
    }
}
