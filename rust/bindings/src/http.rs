//! `HttpConfig`: how a function's calls become requests, as Python says it.

use std::path::PathBuf;
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::function::Function;
use guerdon_http::{
    BodyTemplate, CompoundSpec, Endpoint, FleetOptions, HedgeAfter, Hedging, HttpFunction, HttpLane, KeySource, Piece,
    ResponseParser,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use tokio::runtime::Handle;

use crate::key_requests::KeyRequests;
use crate::parse::{ParseArg, json_path};
use crate::tariff::TariffArg;
use crate::words::word;

/// A piece of a body: JSON as it is, ("text" or "value", column), ("repair", 0), or a list of
/// pieces for each sample.
#[derive(FromPyObject)]
enum PieceArg {
    Raw(PyBackedBytes),
    Column(String, usize),
    Each(Vec<PieceArg>),
}

impl PieceArg {
    fn piece(self) -> PyResult<Piece> {
        Ok(match self {
            Self::Raw(bytes) => Piece::Raw(bytes.to_vec()),
            Self::Column(kind, column) => match kind.as_str() {
                "text" => Piece::Text(column),
                "value" => Piece::Value(column),
                "repair" => Piece::Repair,
                other => return Err(PyValueError::new_err(format!("unknown piece '{other}'"))),
            },
            Self::Each(pieces) => Piece::Each(pieces.into_iter().map(Self::piece).collect::<PyResult<_>>()?),
        })
    }
}

/// The dict of `Plan.config`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct HttpArg {
    url: String,
    body: Vec<PieceArg>,
    api: String,
    parse: Option<ParseArg>,
    path: String,
    headers: Vec<(String, String)>,
    key: Option<String>,
    key_file: Option<PathBuf>,
    key_requests: Option<Py<KeyRequests>>,
    http2: bool,
    authorities: Option<PyBackedBytes>,
    only_these_authorities: bool,
    client_certificate: Option<(PyBackedBytes, PyBackedBytes)>,
    tariff: Option<TariffArg>,
    endpoints: Vec<(String, f64)>,
    resolve_all: bool,
    hedge_after: Option<(String, f64)>,
    hedge_share: f64,
}

/// One function of the http lane. The package has checked the rest; what only the engine can tell
/// raises `ValueError` here.
#[pyclass(frozen, module = "guerdon._native", name = "HttpConfig")]
pub struct HttpConfig {
    pub function: HttpFunction,
}

#[pymethods]
impl HttpConfig {
    #[new]
    fn new(given: HttpArg) -> PyResult<Self> {
        let HttpArg { key, key_file, key_requests, headers, endpoints, resolve_all, hedge_share, .. } = given;
        let wrong = |why: String| PyValueError::new_err(why);
        let path = || if given.path.is_empty() { Ok(None) } else { json_path(&given.path).map(Some) };
        let parser = match &*given.api {
            "sandbox" => ResponseParser::Sandbox,
            "score" => ResponseParser::Score { path: path()? },
            "rewards" => ResponseParser::Rewards { path: path()? },
            api => {
                let parser = given.parse.ok_or_else(|| wrong("a judge needs a parser".to_owned()))?.parser()?;
                ResponseParser::Judge { api: word(api)?, parser }
            }
        };
        let tariff = given.tariff.map(TariffArg::tariff).unwrap_or_default();
        let authorities = given.authorities.map(|pem| pem.to_vec());
        let key = match (key, key_file) {
            (Some(key), Some(file)) => Some(KeySource::File(key, file)),
            (Some(key), None) => Some(KeySource::Text(key)),
            (None, _) => key_requests.and_then(|requests| requests.get().source()),
        };
        let endpoint = Endpoint::new(&given.url, headers, key, given.http2, authorities);
        let client = given.client_certificate.map(|(chain, key)| (chain.to_vec(), key.to_vec()));
        let endpoint = endpoint.and_then(|endpoint| endpoint.with_tls(given.only_these_authorities, client));
        let endpoint = endpoint.map_err(|error| wrong(error.to_string()))?;
        let after = given.hedge_after.map(|(unit, number)| match &*unit {
            "quantile" => Ok(HedgeAfter::Quantile(number)),
            _ => Duration::try_from_secs_f64(number).map(HedgeAfter::Time).map_err(|error| wrong(error.to_string())),
        });
        let hedging = after.transpose()?.map(|after| Hedging { after, share: hedge_share });
        let fleet = FleetOptions::of(&endpoint, &endpoints).map_err(|error| wrong(error.to_string()))?;
        let fleet = FleetOptions { resolve_all, hedging, ..fleet };
        let pieces = given.body.into_iter().map(PieceArg::piece).collect::<PyResult<_>>()?;
        Ok(Self { function: HttpFunction { endpoint, fleet, body: BodyTemplate { pieces }, parser, tariff } })
    }
}

/// Advice for missing file descriptors.
pub const ALLOW_MORE: &str =
    "allow more (ulimit -n 65536 in the shell that starts it), or lower Limit(concurrency=) of its judges";

/// Returns the lane of these functions, if this process may open as many connections as they need.
pub fn lane(
    runtime: &Handle,
    clock: Clock,
    functions: &[Function],
    specs: Vec<Option<HttpFunction>>,
    compounds: Vec<Option<CompoundSpec>>,
) -> PyResult<HttpLane> {
    let lane = HttpLane::new(runtime, clock, functions, specs, compounds);
    let lane = lane.map_err(|error| PyValueError::new_err(error.to_string()))?;
    lane.check_descriptors().map_err(|error| PyValueError::new_err(format!("{error}: {ALLOW_MORE}")))?;
    Ok(lane)
}
