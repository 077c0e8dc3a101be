//! One endpoint of a fleet: its address and its connections.

use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::pool::Pool;

/// See the module.
pub struct Member {
    endpoint: Endpoint,
    pool: Arc<Pool>,
}

impl Member {
    pub const fn new(endpoint: Endpoint, pool: Arc<Pool>) -> Self {
        Self { endpoint, pool }
    }

    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}
