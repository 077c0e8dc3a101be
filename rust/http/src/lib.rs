//! The http lane: calls that are HTTP requests. Judges (chat and completion endpoints) and reward services.
//!
//! `body` makes a request's body from a template and the texts of a batch, `answer` reads the scores out of what comes back (`verdict`: out
//! of a judge's words; `path`: where they stand), `fault` says what a bad answer means (`shown`: as much of it as a reason holds; `redaction`: without the key), `endpoint` is
//! a server (`error`: why it is none), `pool` keeps the connections to it (`streams`: those of HTTP/2; `connector`, `tls`, `tcp`, `names` make
//! one), `function` puts a body, an endpoint and an answer together, `lane` takes the frames of the scheduler (`place`: one function's requests,
//! `held`: a frame in its hands, `request`: one of them on its way), `descriptors` says whether this process may open so many connections.
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
mod error;
mod fault;
mod function;
mod held;
mod lane;
mod names;
mod path;
mod place;
mod pool;
mod redaction;
mod request;
mod shown;
mod streams;
mod tcp;
mod tls;
mod verdict;

pub use answer::{Answer, Api};
pub use body::{Body, JSON, Piece, Text};
pub use descriptors::{TooFew, check as check_descriptors};
pub use endpoint::{Endpoint, Key};
pub use error::EndpointError;
pub use function::HttpFunction;
pub use lane::HttpLane;
pub use path::Path;
pub use verdict::{Parse, PatternError};
