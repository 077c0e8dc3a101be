//! What an answer that is none means for the call: why it failed, whether another attempt can help, and when.
//!
//! - F-1  A status that says "not this request" (400, 401, 403, 404, 422 and the like) is not tried again; one that says "not now" (408, 425, 429,
//!   500 and above) is, and so is all that breaks on the way.
//! - F-2  `Retry-After` is passed on, in seconds or as a date; `retry-after-ms`, which some servers send beside it, goes first. A date is told from
//!   the server's own `Date`, where it sends one: the clocks of two machines may differ.
//! - F-3  What a reason shows of an answer is cut, and has no key in it, even if the server said it back, nor a piece of one (`redaction`).
//! - F-4  An address is said once: beside a name the one that it stood for, or that of the proxy.

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use guerdon_core::outcome::{Answer, Failure, FailureKind};
use hyper::StatusCode;
use hyper::header::HeaderMap;

use crate::connector::{Broken, NoConnection};
use crate::endpoint::Endpoint;
use crate::shown::{cut, shown};

/// Longer than anyone means.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// A failed request.
pub struct Fault {
    pub reason: String,
    pub retryable: bool,
    pub retry_after: Option<Duration>,
    /// What it tells of the server, for limits.
    pub answer: Option<Answer>,
}

impl Fault {
    /// The server said something other than "here it is".
    pub fn of_status(endpoint: &Endpoint, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let code = status.as_u16();
        let what = status.canonical_reason().map_or_else(|| code.to_string(), |words| format!("{code} {words}"));
        let said = String::from_utf8_lossy(body);
        let said = if said.trim().is_empty() { String::new() } else { format!(": {}", shown(said.trim())) };
        let hint = match code {
            300..=399 => " (a redirect, which is not followed: give the address that it leads to)",
            401 | 403 => " (is the key right?)",
            _ => "",
        };
        Self {
            reason: endpoint.without_key(&format!("{} answered {what}{hint}{said}", endpoint.host())),
            retryable: matches!(code, 408 | 425 | 429 | 500..),
            retry_after: retry_after(headers, SystemTime::now()),
            answer: Some(Answer::Status(code)),
        }
    }

    /// The request or its answer broke on the way.
    pub fn of_transport(endpoint: &Endpoint, broken: &Broken) -> Self {
        let host = endpoint.host();
        let why = match broken {
            Broken::NoConnection(NoConnection::Late(after)) => {
                format!("can't connect to {host}: no connection within {} s", after.as_secs_f64())
            }
            Broken::NoConnection(NoConnection::Failed(error)) => {
                format!("can't connect to {}", at(endpoint, &causes(&**error)))
            }
            Broken::OnTheWay(error) => format!("{host}: {}", causes(error)),
        };
        let hint = if why.contains("UnknownIssuer") {
            " (its certificate is signed by nobody that this machine trusts: give the authority's as ca_file=)"
        } else {
            ""
        };
        let reason = endpoint.without_key(&format!("ConnectionError: {why}{hint}"));
        Self { reason, retryable: true, retry_after: None, answer: Some(Answer::Unreachable) }
    }

    /// The answer came, and makes no sense.
    pub fn of_answer(endpoint: &Endpoint, why: &str) -> Self {
        let reason = endpoint.without_key(&format!("{} gave {why}", endpoint.host()));
        Self { reason, retryable: true, retry_after: None, answer: Some(Answer::Status(200)) }
    }

    /// As the scheduler takes it.
    pub fn into_failure(self) -> Failure {
        let Self { reason, retryable, retry_after, answer } = self;
        Failure { kind: FailureKind::Error, reason, traceback: None, retryable, retry_after, answer }
    }
}

/// A server and why it can't be reached, with the address that this names if it is another (F-4).
fn at(endpoint: &Endpoint, why: &str) -> String {
    let host = endpoint.host();
    match why.split_once(": ").and_then(|(address, rest)| Some((address.parse::<SocketAddr>().ok()?, rest))) {
        Some((address, rest)) if endpoint.is_at(address) => format!("{host}: {rest}"),
        Some((address, rest)) => format!("{host} ({address}): {rest}"),
        None => format!("{host}: {why}"),
    }
}

/// An error and what is behind it, cut: names in certificates, and what goes with a GOAWAY, are a server's and may be long.
fn causes(error: &(dyn Error + 'static)) -> String {
    let mut words = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        // Some say what is behind them themselves.
        if words.last().is_some_and(|last| !last.contains(&said)) {
            words.push(said);
        }
        cause = inner.source();
    }
    cut(&words.join(": "))
}

/// How long the server asked to wait (F-2).
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let number = |text: &str, unit: f64| {
        let seconds = text.parse::<f64>().ok()? * unit;
        Duration::try_from_secs_f64(seconds).ok()
    };
    let wait = text_of(headers, "retry-after-ms").and_then(|text| number(text, 1e-3)).or_else(|| {
        let text = text_of(headers, "retry-after")?;
        number(text, 1.0).or_else(|| {
            let date = |text: &str| httpdate::parse_http_date(text).ok();
            let sent = text_of(headers, "date").and_then(date).unwrap_or(now);
            Some(date(text)?.duration_since(sent).unwrap_or_default())
        })
    });
    wait.map(|wait| wait.min(LONGEST_WAIT))
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Key;

    fn endpoint() -> Endpoint {
        let key = Key::new("sk-very-secret".to_owned());
        Endpoint::new("http://judge.local/v1", vec![], Some(key), false, None).unwrap()
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn f1_what_another_attempt_can_mend() {
        let retryable = |code: u16| {
            let status = StatusCode::from_u16(code).unwrap();
            Fault::of_status(&endpoint(), status, &HeaderMap::new(), b"").retryable
        };
        for code in [408, 425, 429, 500, 502, 503, 504, 529] {
            assert!(retryable(code), "{code}");
        }
        for code in [301, 400, 401, 403, 404, 405, 413, 422] {
            assert!(!retryable(code), "{code}");
        }
    }

    #[test]
    fn f2_how_long_to_wait() {
        let now = httpdate::parse_http_date("Fri, 01 May 2026 10:00:00 GMT").unwrap();
        let wait = |pairs: &[(&'static str, &str)]| retry_after(&headers(pairs), now).map(|wait| wait.as_secs_f64());
        assert_eq!(wait(&[("retry-after", "2")]), Some(2.0));
        assert_eq!(wait(&[("retry-after", "0.5"), ("retry-after-ms", "1500")]), Some(1.5));
        assert_eq!(wait(&[("retry-after", "Fri, 01 May 2026 10:00:30 GMT")]), Some(30.0));
        assert_eq!(wait(&[("retry-after", "Fri, 01 May 2026 09:00:00 GMT")]), Some(0.0));
        let (sent, later) = ("Fri, 01 May 2026 08:00:00 GMT", "Fri, 01 May 2026 08:00:07 GMT");
        assert_eq!(wait(&[("date", sent), ("retry-after", later)]), Some(7.0), "its clock is two hours behind");
        assert_eq!(wait(&[("retry-after", "1e300")]), None);
        assert_eq!(wait(&[("retry-after", "99999999")]), Some(3600.0));
        assert_eq!(wait(&[("retry-after", "-1")]), None);
        assert_eq!(wait(&[]), None);
    }

    #[test]
    fn f4_an_address_is_said_once() {
        let of = |url: &str, said: &str| {
            let endpoint = Endpoint::new(url, vec![], None, false, None).unwrap();
            let broken = Broken::NoConnection(NoConnection::Failed(said.into()));
            let reason = Fault::of_transport(&endpoint, &broken).reason;
            reason.strip_prefix("ConnectionError: can't connect to ").unwrap().to_owned()
        };
        let refused = |address: &str| format!("{address}: Connection refused (os error 111)");
        let plain = |place: &str| format!("{place}: Connection refused (os error 111)");
        assert_eq!(of("http://127.0.0.1:9/v1", &refused("127.0.0.1:9")), plain("127.0.0.1:9"));
        assert_eq!(of("http://127.0.0.1/v1", &refused("127.0.0.1:80")), plain("127.0.0.1"));
        assert_eq!(of("https://[::1]:9/v1", &refused("[::1]:9")), plain("[::1]:9"));
        assert_eq!(of("https://judge.local/v1", &refused("10.0.0.1:443")), plain("judge.local (10.0.0.1:443)"));
        assert_eq!(
            of("http://10.0.0.1:9/v1", &refused("10.0.0.7:3128")),
            plain("10.0.0.1:9 (10.0.0.7:3128)"),
            "a proxy"
        );
        assert_eq!(of("https://judge.local/v1", "no such name"), "judge.local: no such name");
        let long = of("https://judge.local/v1", &"ö".repeat(10_000));
        assert!(long.ends_with("öö…") && long.len() < 400, "F-3: {long}");
    }

    #[test]
    fn f3_no_key_in_a_reason() {
        let said = br#"{"error": "Incorrect API key: sk-very-secret"}"#;
        let fault = Fault::of_status(&endpoint(), StatusCode::UNAUTHORIZED, &HeaderMap::new(), said);
        assert!(!fault.reason.contains("very-secret"), "{}", fault.reason);
        assert!(
            fault.reason.starts_with("judge.local answered 401 Unauthorized (is the key right?): "),
            "{}",
            fault.reason
        );
    }
}
