//! One endpoint of a fleet: its address and its connections.

use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::pool::Pool;

/// See the module.
pub struct Member {
    endpoint: Endpoint,
    pool: Arc<Pool>,
    /// Its name in dumps.
    host: Arc<str>,
}

impl Member {
    pub fn new(endpoint: Endpoint, pool: Arc<Pool>) -> Self {
        let host = endpoint.host().into();
        Self { endpoint, pool, host }
    }

    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    pub const fn host(&self) -> &Arc<str> {
        &self.host
    }
}
