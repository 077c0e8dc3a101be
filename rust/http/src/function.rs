//! A function of the http lane: its endpoints, its bodies, its response parser.

use crate::api_key::KeySource;
use crate::body::BodyTemplate;
use crate::endpoint::Endpoint;
use crate::fleet::FleetOptions;
use crate::meter::Tariff;
use crate::programs::ProgramJudge;
use crate::response::ResponseParser;

/// Requests of one function's calls.
#[derive(Clone, Debug)]
pub struct HttpFunction {
    pub endpoint: Endpoint,
    /// Its other endpoints, and how calls are spread over them.
    pub fleet: FleetOptions,
    pub body: BodyTemplate,
    pub parser: ResponseParser,
    pub tariff: Tariff,
    /// Judge of programs, for which a call is several requests; its body is then the question.
    pub programs: Option<ProgramJudge>,
    /// Present for a rubric.
    pub criteria: Option<Criteria>,
}

/// A function of the package that answers questions about requests.
#[derive(Clone)]
pub enum Callback {
    Key(KeySource),
    Programs(ProgramJudge),
}

/// Criteria by which a judge scores a sample: its answers are reported as `JUDGMENTS`.
#[derive(Clone, Debug)]
pub struct Criteria {
    /// Number of scores in an answer.
    pub in_an_answer: usize,
    /// Bodies and parsers of the member calls in the slots after the first, if each criterion has a
    /// separate request.
    pub others: Vec<(BodyTemplate, ResponseParser)>,
}
