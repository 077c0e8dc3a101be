//! A function of this lane: where its calls go, what is sent, how the answer is read.

use crate::answer::Answer;
use crate::body::Body;
use crate::endpoint::Endpoint;

/// How one function's calls become requests.
#[derive(Clone, Debug)]
pub struct HttpFunction {
    pub endpoint: Endpoint,
    pub body: Body,
    pub answer: Answer,
}
