//! Configuration of a function of the http lane, as the package gives it.
//!
//! The package has checked the values. Faults that only the engine can find, such as an unusable
//! pattern or certificate, are errors of the methods here.

use std::sync::Arc;

use guerdon_core::settings::{RawPath, Secret};
use guerdon_core::spending::{Cap, Price, Spending};
use serde::Deserialize;
use serde_bytes::ByteBuf;

use crate::api_key::KeySource;
use crate::body::{BodyTemplate, Piece};
use crate::dialect::Api;
use crate::endpoint::Endpoint;
use crate::fleet::{FleetOptions, Hedging};
use crate::function::{Callback, Criteria, HttpFunction};
use crate::json_path::JsonPath;
use crate::meter::Tariff;
use crate::parse::{Choice, Criterion, Layout, LogProb, Method, Pattern, Range, Rubric, ScoreParser, Which};
use crate::response::ResponseParser;

/// Requests of one function's calls: the dict of `Plan.config`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSettings {
    /// URLs, each with its weight; the first is the function's own.
    endpoints: Vec<(String, f64)>,
    resolve_all: bool,
    hedging: Option<Hedging>,
    body: Vec<Piece>,
    response: ResponseSettings,
    headers: Vec<(String, Secret)>,
    key: Option<KeySettings>,
    http2: bool,
    #[serde(with = "serde_bytes")]
    authorities: Option<Vec<u8>>,
    only_these_authorities: bool,
    client_certificate: Option<(ByteBuf, ByteBuf)>,
    tariff: Option<TariffSettings>,
    /// Position of the judge of programs among the callbacks.
    programs: Option<usize>,
    criteria: Option<CriteriaSettings>,
}

/// Scores in an answer, and bodies and readers of the requests after the first.
#[derive(Deserialize)]
struct CriteriaSettings(usize, Vec<(Vec<Piece>, ResponseSettings)>);

/// Reader of responses.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ResponseSettings {
    Judge(Api, ParseSettings),
    Score(Option<String>),
    Rewards(Option<String>),
    Sandbox,
}

impl ResponseSettings {
    fn parser(&self) -> Result<ResponseParser, String> {
        let path = |path: &Option<String>| path.as_deref().map(json_path).transpose();
        Ok(match self {
            Self::Judge(api, parse) => ResponseParser::Judge { api: *api, parser: parse.parser()? },
            Self::Score(at) => ResponseParser::Score { path: path(at)? },
            Self::Rewards(at) => ResponseParser::Rewards { path: path(at)? },
            Self::Sandbox => ResponseParser::Sandbox,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum KeySettings {
    Text(Secret),
    /// The key as it was read from a file, and the file.
    File(Secret, RawPath),
    /// Position among the callbacks.
    Function(usize),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TariffSettings {
    price: Option<Price>,
    /// The function's own cap.
    cap: Option<Cap>,
    keep_answers: bool,
    longest_answer: Option<u32>,
}

impl HttpSettings {
    /// Makes the function's own cap, which all its requests share.
    pub fn own_cap(&self) -> Option<Arc<Spending>> {
        let cap = self.tariff.as_ref()?.cap.clone()?;
        Some(Arc::new(Spending::new(cap)))
    }

    /// Makes the function.
    pub fn function(&self, caps: &[Arc<Spending>], callbacks: &[Callback]) -> Result<HttpFunction, String> {
        let parser = self.response.parser()?;
        let criteria = self.criteria.as_ref().map(|CriteriaSettings(in_an_answer, others)| {
            let other = |(pieces, response): &(Vec<Piece>, ResponseSettings)| {
                Ok((BodyTemplate { pieces: pieces.clone() }, response.parser()?))
            };
            let others = others.iter().map(other).collect::<Result<_, String>>()?;
            Ok::<_, String>(Criteria { in_an_answer: *in_an_answer, others })
        });
        let tariff = self.tariff.as_ref().map_or_else(Tariff::default, |tariff| Tariff {
            price: tariff.price,
            caps: if tariff.price.is_some() { caps.to_vec() } else { Vec::new() },
            keep_answers: tariff.keep_answers,
            longest_answer: tariff.longest_answer,
        });
        let key = self.key.as_ref().and_then(|key| match key {
            KeySettings::Text(key) => Some(KeySource::Text(key.0.clone())),
            KeySettings::File(key, path) => Some(KeySource::File(key.0.clone(), path.0.clone())),
            KeySettings::Function(position) => match callbacks.get(*position)? {
                Callback::Key(source) => Some(source.clone()),
                Callback::Programs(_) => None,
            },
        });
        let headers = self.headers.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
        let url = self.endpoints.first().map_or("", |(url, _)| url);
        let client = self.client_certificate.as_ref().map(|(chain, key)| (chain.to_vec(), key.to_vec()));
        let endpoint = Endpoint::new(url, headers, key, self.http2, self.authorities.clone())
            .and_then(|endpoint| endpoint.with_tls(self.only_these_authorities, client))
            .map_err(|error| error.to_string())?;
        let fleet = FleetOptions::of(&endpoint, &self.endpoints).map_err(|error| error.to_string())?;
        let fleet = FleetOptions { resolve_all: self.resolve_all, hedging: self.hedging, ..fleet };
        let programs = self.programs.and_then(|position| match callbacks.get(position)? {
            Callback::Programs(judge) => Some(judge.clone()),
            Callback::Key(_) => None,
        });
        let body = BodyTemplate { pieces: self.body.clone() };
        Ok(HttpFunction { endpoint, fleet, body, parser, tariff, programs, criteria: criteria.transpose()? })
    }
}

/// A `guerdon.parse.Parse`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParseSettings {
    kind: ParseKind,
    value: String,
    words: Vec<(String, f64)>,
    others: Vec<String>,
    /// Number of likely tokens in a response; the package puts it into requests.
    #[serde(rename = "top")]
    _top: usize,
    which: Option<Which>,
    range: Option<(f64, f64)>,
    reasoning: String,
    /// Used by the package.
    #[serde(rename = "repair")]
    _repair: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ParseKind {
    Number,
    Tag,
    Regex,
    Json,
    YesNo,
    Choice,
    Logprob,
    Rubric,
    Function,
}

impl ParseSettings {
    pub fn parser(&self) -> Result<ScoreParser, String> {
        let (value, words) = (self.value.clone(), self.words.clone());
        let method = match self.kind {
            ParseKind::Number if value.is_empty() => Method::Number,
            ParseKind::Number => Method::Labelled(value),
            ParseKind::Tag => Method::Tag(value),
            ParseKind::Regex => Method::Pattern(Pattern::new(&value, words.into_iter().collect())?),
            ParseKind::Json => Method::Json(json_path(&value)?),
            ParseKind::YesNo => Method::YesNo,
            ParseKind::Choice => Method::Choice(Choice::new(words)),
            ParseKind::Logprob => {
                let numbers = words.into_iter().map(|(_, number)| number).collect();
                Method::LogProb(LogProb { token: value, others: self.others.clone(), numbers })
            }
            ParseKind::Function => Method::Function,
            ParseKind::Rubric => {
                let criteria = words.into_iter().map(|(name, weight)| Criterion { name, weight }).collect();
                Method::Rubric(Rubric { criteria, layout: if value == "tags" { Layout::Tags } else { Layout::Json } })
            }
        };
        let range = self.range.map(|(low, high)| Range { low, high });
        let which = self.which.unwrap_or_default();
        Ok(ScoreParser { method, which, range, keep_reasoning: self.reasoning == "keep" })
    }
}

fn json_path(text: &str) -> Result<JsonPath, String> {
    JsonPath::parse(text).ok_or_else(|| format!("{text:?} is not a path to a field"))
}
