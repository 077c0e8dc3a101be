//! The http lane: calls that are HTTP requests, to judges (chat and completion endpoints) and
//! reward services. `lane` takes the scheduler's frames, `request_queue` sends their calls through
//! the `fleet` of a function's endpoints.
//!
//! - No request needs Python: templates are split and texts captured before.
//! - A key leaves the process in the header of a request to its endpoint, and in no other way: not
//!   in a reason, a dump or a log.
//! - One request is one attempt; only the scheduler grants another. Redirects are not followed.
#![forbid(unsafe_code)]

mod answer_stream;
mod api_key;
mod body;
mod call_store;
mod connector;
mod dialect;
mod dns;
mod endpoint;
mod endpoint_error;
mod error_classification;
mod escape;
mod fd_limit;
mod fleet;
mod function;
mod http2;
mod in_flight;
mod json_path;
mod kept_answers;
mod lane;
mod long_body;
mod meter;
mod parse;
mod pool;
mod programs;
mod progress;
mod quote;
mod raw_json;
mod redaction;
mod repair;
mod request;
mod request_body;
mod request_queue;
mod response;
mod settings;
mod tcp;
mod tls;

pub use api_key::{KeyAnswer, KeySource};
pub use body::{BodyTemplate, JSON, Piece, Text};
pub use dialect::sandbox::{RunEnd, SandboxRun};
pub use dialect::{Api, JudgeAnswer, Usage};
pub use endpoint::Endpoint;
pub use endpoint_error::EndpointError;
pub use fd_limit::TooFewDescriptors;
pub use fleet::{FleetCounts, FleetOptions, HedgeAfter, Hedging};
pub use function::{Callback, Criteria, HttpFunction};
pub use json_path::JsonPath;
pub use lane::HttpLane;
pub use meter::Tariff;
pub use parse::{
    AnswerText, Choice, Criterion, Judgment, Layout, LogProb, Method, Pattern, Range, Rubric, ScoreParser, Which,
};
pub use programs::{BegunProgram, Program, ProgramJudge, ProgramQuestion, ProgramStep};
pub use response::ResponseParser;
pub use settings::{HttpSettings, ParseSettings};
