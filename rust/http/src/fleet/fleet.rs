//! Sends the requests of one function.
//!
//! A request that found no connection goes to another endpoint: the server knows nothing of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::endpoint::Endpoint;
use crate::endpoint_error::EndpointError;
use crate::fleet::member::Member;
use crate::fleet::pools::Pools;
use crate::fleet::request::{Failed, FleetRequest, RequestKey};

/// See the module.
pub struct Fleet {
    /// Never empty.
    members: Vec<Arc<Member>>,
}

impl Fleet {
    /// For a function with so many requests in flight.
    pub fn new(endpoint: &Endpoint, requests: usize, pools: &Pools) -> Result<Self, EndpointError> {
        Ok(Self { members: vec![Arc::new(Member::new(endpoint.clone(), pools.get(endpoint, requests)?))] })
    }

    /// Sends a request, in so much time at most.
    pub async fn send<T>(
        &self,
        _key: RequestKey,
        request: &impl FleetRequest<T>,
        within: Duration,
    ) -> Result<T, Failed> {
        let until = Instant::now() + within;
        let mut ended = Err(Failed::no_endpoint());
        for (place, member) in self.members.iter().enumerate() {
            let error = match request.send(member, until).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let (unsent, others_up) = (error.unsent, place + 1 < self.members.len());
            ended = Err(Failed { failure: error.failure, others_up });
            if !unsent {
                break;
            }
        }
        ended
    }
}
