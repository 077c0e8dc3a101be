//! A function of the http lane: where its calls go, what is sent, how the response is read.

use crate::body::BodyTemplate;
use crate::endpoint::Endpoint;
use crate::fleet::FleetOptions;
use crate::meter::Tariff;
use crate::response::ResponseParser;

/// How one function's calls become requests.
#[derive(Clone, Debug)]
pub struct HttpFunction {
    pub endpoint: Endpoint,
    /// Its other endpoints, and how calls are spread over them.
    pub fleet: FleetOptions,
    pub body: BodyTemplate,
    pub parser: ResponseParser,
    pub tariff: Tariff,
}
