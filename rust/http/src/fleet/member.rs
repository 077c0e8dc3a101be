//! One endpoint of a fleet: its address and its connections.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::endpoint::Endpoint;
use crate::pool::Pool;

/// See the module.
pub struct Member {
    pub endpoint: Endpoint,
    pub pool: Arc<Pool>,
    /// Permits to read long responses, which bound the memory, of all endpoints of a function: one
    /// with long answers does not hold up others. Taken by `request`.
    pub long_responses: Arc<Semaphore>,
    /// Its name in dumps.
    pub host: Arc<str>,
}

impl Member {
    pub fn new(endpoint: Endpoint, pool: Arc<Pool>, long_responses: Arc<Semaphore>) -> Self {
        let host = endpoint.host().into();
        Self { endpoint, pool, long_responses, host }
    }
}
