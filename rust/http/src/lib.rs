//! The http lane: calls that are HTTP requests. Judges (chat and completion endpoints) and reward services.
//!
//! `body` makes a request's body from a template and the texts of a batch, `answer` reads the scores out of what comes back (`verdict`: out
//! of a judge's words), `fault` says what a bad answer means, `endpoint` is a server, `pool` keeps the connections to it
//! (`connector`, `tls`, `names` make one), `lane` takes the frames of the scheduler (`place`: one function's requests, `held`: a frame in its
//! hands, `request`: one of them on its way).
//!
//! - H-1  No request needs Python: templates were split and texts captured before.
//! - H-2  A key leaves this process in the header of a request to its endpoint, and in no other way: not in a reason, a dump or a log.
//! - H-3  One request is one attempt. Whether there is another is the scheduler's to say; redirects are not followed.
#![forbid(unsafe_code)]

mod answer;
mod body;
mod connector;
mod descriptors;
mod endpoint;
mod fault;
mod held;
mod lane;
mod names;
mod place;
mod pool;
mod request;
mod tls;
mod verdict;

pub use answer::{Answer, Api, Path};
pub use body::{Body, JSON, Piece, Text};
pub use descriptors::{TooFew, check as check_descriptors};
pub use endpoint::{Endpoint, EndpointError, Key};
pub use lane::{HttpFunction, HttpLane};
pub use verdict::{Parse, PatternError};
