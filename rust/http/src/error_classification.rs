//! Classifies what went wrong with a request: the reason, whether to retry, and when.
//!
//! - A status that says "not this request" (400, 401, 403, 404, 422, …) is not retried; one that
//!   says "not now" (408, 425, 429, 5xx) is, and so is every transport error.
//! - A server that says that it is overloaded, by 529 or in words, throttles as with 429. A used-up
//!   quota does not count as throttling: nothing that waits for it would get through.
//! - `retry-after-ms`, else `Retry-After` (seconds or a date by the server's own clock), else the
//!   reset of a used-up `x-ratelimit-remaining-…`, else Google's `retryDelay`, is passed on.
//! - A reason shows a truncated part of the response, without the key (`redaction`).

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use guerdon_core::outcome::{Answer, Failure, FailureKind};
use hyper::StatusCode;
use hyper::header::HeaderMap;
use serde_json::value::RawValue;

use crate::api_key::NoOtherKey;
use crate::connector::{ConnectError, TransportError};
use crate::endpoint::Endpoint;
use crate::fleet::SendError;
use crate::quote::{quoted, truncated};
use crate::raw_json::{Raw, count, each_object, first, text, within};

/// No server means a longer one.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Words of servers for a quota that is used up, in small letters.
const QUOTA: [&str; 3] = ["insufficient_quota", "billing_hard_limit", "billing_not_active"];
/// Words of servers in a 503 if they are up and have too much to do.
const OVERLOADED: [&str; 4] = ["overload", "too many requests", "rate limit", "at capacity"];
/// Names of errors in the body of a success, and the status of each.
const KINDS: [(&str, u16); 8] = [
    ("overloaded_error", 529),
    ("rate_limit_error", 429),
    ("rate_limit_exceeded", 429),
    ("insufficient_quota", 429),
    ("api_error", 500),
    ("server_error", 500),
    ("RESOURCE_EXHAUSTED", 429),
    ("UNAVAILABLE", 503),
];

/// A failed request; `answer` is the server's, for limits.
fn failed(reason: String, retryable: bool, answer: Answer) -> SendError {
    let failure = Failure { retryable, answer: Some(answer), ..Failure::error(reason) };
    SendError { failure, unsent: matches!(answer, Answer::Unreachable) }
}

impl SendError {
    /// A status other than 2xx.
    pub fn from_status(endpoint: &Endpoint, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let code = status.as_u16();
        let what = status.canonical_reason().map_or_else(|| code.to_string(), |words| format!("{code} {words}"));
        let body_text = String::from_utf8_lossy(body);
        let body_text =
            if body_text.trim().is_empty() { String::new() } else { format!(": {}", quoted(body_text.trim())) };
        let words = body_text.to_lowercase();
        let exhausted = QUOTA.iter().any(|word| words.contains(word));
        let overloaded = code == 529 || (code == 503 && OVERLOADED.iter().any(|word| words.contains(word)));
        let hint = match code {
            429 if exhausted => " (the quota is used up)",
            300..=399 => " (redirects are not followed: use the address that it leads to)",
            401 | 403 => " (check the API key)",
            404 if endpoint.lacks_version() => " (is the address complete? base_url= of most servers ends with /v1)",
            _ => "",
        };
        let reason = endpoint.redact(&format!("{} answered {what}{hint}{body_text}", endpoint.host()));
        let retryable = matches!(code, 408 | 425 | 429 | 500..) && !exhausted;
        let answer = match code {
            429 if exhausted => 402,
            _ if overloaded => 429,
            code => code,
        };
        let mut error = failed(reason, retryable, Answer::Status(answer));
        let wait = || retry_after(headers, SystemTime::now()).or_else(|| retry_delay(body));
        error.failure.retry_after = if exhausted { None } else { wait() };
        error
    }

    /// A success by its status whose body says that the server failed: the status that it names.
    pub fn from_body(endpoint: &Endpoint, headers: &HeaderMap, body: &[u8]) -> Option<Self> {
        let error = error_in(body)?;
        let [code, status, kind] = within(Some(error), ["code", "status", "type"]);
        let number = [code, status].into_iter().find_map(count).and_then(|code| u16::try_from(code).ok());
        let kinds = [kind, code, status].into_iter().filter_map(text);
        let named = || kinds.into_iter().find_map(|kind| KINDS.iter().find(|(name, _)| *name == kind));
        let code = number.filter(|code| *code >= 400).or_else(|| named().map(|(_, code)| *code))?;
        let status = StatusCode::from_u16(code).ok()?;
        Some(Self::from_status(endpoint, status, headers, error.get().as_bytes()))
    }

    /// The request or its response broke on the way.
    pub fn from_transport(endpoint: &Endpoint, error: &TransportError) -> Self {
        let host = endpoint.host();
        let why = match error {
            TransportError::Connect(ConnectError::Timeout(after)) => {
                format!("can't connect to {host}: no connection within {} s", after.as_secs_f64())
            }
            TransportError::Connect(ConnectError::Failed(error)) => {
                format!("can't connect to {}", at(endpoint, &causes(&**error)))
            }
            TransportError::Exchange(error) => format!("{host}: {}", causes(error)),
        };
        let reason = endpoint.redact(&format!("ConnectionError: {why}{}", tls_hint(&why)));
        let answer = match error {
            TransportError::Connect(_) => Answer::Unreachable,
            TransportError::Exchange(_) => Answer::Broken,
        };
        failed(reason, true, answer)
    }

    /// The request has no key to go with.
    pub fn without_key(why: NoOtherKey) -> Self {
        let why = match why {
            NoOtherKey::Failed(why) => why,
            NoOtherKey::Same => "it has returned none".to_owned(),
        };
        let failure = Failure::new(FailureKind::Error, format!("no key from the function in api_key=: {why}"));
        Self { failure, unsent: false }
    }

    /// The response has no score.
    pub fn invalid_response(endpoint: &Endpoint, why: &str) -> Self {
        failed(endpoint.redact(&format!("{} returned {why}", endpoint.host())), true, Answer::Status(200))
    }

    /// A success by its status that says of itself that the server failed: as a 500.
    pub fn server_failed(endpoint: &Endpoint, why: &str) -> Self {
        failed(endpoint.redact(&format!("{} answered {why}", endpoint.host())), true, Answer::Status(500))
    }
}

/// Returns the advice on a frequent error of TLS; its name alone says it to few.
fn tls_hint(why: &str) -> &'static str {
    const HINTS: [(&str, &str); 3] = [
        (
            "UnknownIssuer",
            " (its certificate authority is not trusted here: pass the authority's certificate as ca_file=)",
        ),
        (
            "CaUsedAsEndEntity",
            " (its certificate is an authority's, which is none of a server: make it with basicConstraints=CA:FALSE)",
        ),
        ("InvalidContentType", " (it does not speak TLS: is its address http://?)"),
    ];
    HINTS.iter().find(|(error, _)| why.contains(error)).map_or("", |(_, hint)| hint)
}

/// A server and why it can't be reached; the address is shown only where it says something new.
fn at(endpoint: &Endpoint, why: &str) -> String {
    let host = endpoint.host();
    match why.split_once(": ").and_then(|(address, rest)| Some((address.parse::<SocketAddr>().ok()?, rest))) {
        Some((address, rest)) if endpoint.is_at(address) => format!("{host}: {rest}"),
        Some((address, rest)) => format!("{host} ({address}): {rest}"),
        None => format!("{host}: {why}"),
    }
}

/// An error and its causes, truncated: names in certificates and the text of a GOAWAY are the
/// server's and may be long.
fn causes(error: &(dyn Error + 'static)) -> String {
    let mut words = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(inner) = cause {
        let body_text = inner.to_string();
        // Some messages include their cause.
        if words.last().is_some_and(|last| !last.contains(&body_text)) {
            words.push(body_text);
        }
        cause = inner.source();
    }
    truncated(&words.join(": "))
}

/// Returns the time that the server asked to wait.
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
    wait.or_else(|| reset(headers)).map(|wait| wait.min(LONGEST_WAIT))
}

/// Returns the time until the last of the allowances is renewed that are used up.
fn reset(headers: &HeaderMap) -> Option<Duration> {
    let of = |what: &str| {
        let remaining = text_of(headers, &format!("x-ratelimit-remaining-{what}"))?.parse::<f64>().ok()?;
        let reset = text_of(headers, &format!("x-ratelimit-reset-{what}"))?;
        (remaining <= 0.0).then(|| Duration::try_from_secs_f64(seconds(reset)?).ok()).flatten()
    };
    of("requests").max(of("tokens"))
}

/// The error that a body says: of an object, or of the first one of a list, as Gemini has it.
fn error_in(body: &[u8]) -> Raw<'_> {
    let body = serde_json::from_slice::<&RawValue>(body).ok();
    let [error] = within(first(body).or(body), ["error"]);
    error.filter(|error| error.get().starts_with('{'))
}

/// The time to wait in the details of an error of Google's.
fn retry_delay(body: &[u8]) -> Option<Duration> {
    let error = error_in(body).or_else(|| serde_json::from_slice(body).ok());
    let ([details], mut wait) = (within(error, ["details"]), None);
    // An object that contradicts itself has none.
    let _ = each_object(details, ["retryDelay"], |[delay]| {
        wait = wait.or_else(|| Duration::try_from_secs_f64(seconds(&text(delay)?)?).ok());
        Ok(())
    });
    wait.map(|wait: Duration| wait.min(LONGEST_WAIT))
}

/// Reads a duration such as "6m0s", "1.5s" or "20ms"; a number alone is seconds.
fn seconds(mut text: &str) -> Option<f64> {
    let mut all = 0.0;
    while !text.is_empty() {
        let (amount, rest) =
            text.split_at(text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len()));
        let (unit, rest) = rest.split_at(rest.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(rest.len()));
        let unit = [("", 1.0), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)]
            .into_iter()
            .find_map(|(name, seconds)| (name == unit).then_some(seconds))?;
        all += amount.parse::<f64>().ok()? * unit;
        text = rest;
    }
    Some(all)
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_key::KeySource;

    fn endpoint() -> Endpoint {
        let key = KeySource::Text("sk-very-secret".to_owned());
        Endpoint::new("http://judge.local/v1", vec![], Some(key), false, None).unwrap()
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn statuses_are_retried_by_kind() {
        let retryable = |code: u16| {
            let status = StatusCode::from_u16(code).unwrap();
            SendError::from_status(&endpoint(), status, &HeaderMap::new(), b"").failure.retryable
        };
        for code in [408, 425, 429, 500, 502, 503, 504, 529] {
            assert!(retryable(code), "{code}");
        }
        for code in [301, 400, 401, 403, 404, 405, 413, 422] {
            assert!(!retryable(code), "{code}");
        }
    }

    #[test]
    fn an_error_is_what_its_words_say() {
        let of = |code: u16, body: &str| {
            let status = StatusCode::from_u16(code).unwrap();
            let error = SendError::from_status(&endpoint(), status, &HeaderMap::new(), body.as_bytes());
            (error.failure.answer, error.failure.retryable)
        };
        let throttled = (Some(Answer::Status(429)), true);
        assert_eq!(of(529, ""), throttled);
        assert_eq!(of(503, "The model is overloaded"), throttled);
        assert_eq!(of(503, "starting"), (Some(Answer::Status(503)), true));
        assert_eq!(of(429, r#"{"error": {"code": "insufficient_quota"}}"#), (Some(Answer::Status(402)), false));
        let within = |body: &str| {
            SendError::from_body(&endpoint(), &HeaderMap::new(), body.as_bytes()).map(|error| error.failure.answer)
        };
        assert_eq!(within(r#"{"error": {"code": 429, "message": "slow down"}}"#), Some(Some(Answer::Status(429))));
        assert_eq!(within(r#"{"error": {"type": "overloaded_error"}}"#), Some(Some(Answer::Status(429))));
        assert_eq!(within(r#"{"error": {"code": 502}}"#), Some(Some(Answer::Status(502))));
        assert_eq!(within(r#"[{"error": {"status": "UNAVAILABLE"}}]"#), Some(Some(Answer::Status(503))));
        for none in ["[]", "[7]", "{}", "8", r#"{"error": "x"}"#, r#"{"error": {"code": 7}}"#] {
            assert_eq!(within(none), None, "{none}");
        }
    }

    /// https://ai.google.dev/gemini-api/docs/troubleshooting
    #[test]
    fn a_list_of_gemini_says_when_to_come_again() {
        let body = |delay: &str| {
            format!(
                r#"[{{"error": {{"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota exceeded", "details": [
                {{"@type": "type.googleapis.com/google.rpc.Help"}},
                {{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "{delay}"}}]}}}}]"#
            )
        };
        let wait = |delay: &str, headers: &HeaderMap| {
            let body = body(delay);
            let refused = SendError::from_status(&endpoint(), StatusCode::TOO_MANY_REQUESTS, headers, body.as_bytes());
            let within = SendError::from_body(&endpoint(), headers, body.as_bytes()).unwrap();
            for error in [&refused, &within] {
                assert_eq!((error.failure.answer, error.failure.retryable), (Some(Answer::Status(429)), true));
                assert!(error.failure.reason.contains("RESOURCE_EXHAUSTED"), "{}", error.failure.reason);
            }
            assert_eq!(refused.failure.retry_after, within.failure.retry_after);
            refused.failure.retry_after.map(|wait| wait.as_secs_f64())
        };
        for (delay, seconds) in [("17s", Some(17.0)), ("0.5s", Some(0.5)), ("99999s", Some(3600.0)), ("soon", None)] {
            assert_eq!(wait(delay, &HeaderMap::new()), seconds, "{delay}");
        }
        assert_eq!(wait("17s", &headers(&[("retry-after", "2")])), Some(2.0), "a header goes first");
    }

    #[test]
    fn retry_after_is_read() {
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
        let allowed = |remaining, reset| {
            wait(&[
                ("x-ratelimit-remaining-requests", remaining),
                ("x-ratelimit-reset-requests", reset),
                ("x-ratelimit-remaining-tokens", "9"),
            ])
        };
        for (reset, seconds) in [("6m0s", 360.0), ("1.5s", 1.5), ("20ms", 0.02), ("1h2m", 3600.0), ("7", 7.0)] {
            assert_eq!(allowed("0", reset), Some(seconds), "{reset}");
        }
        for (remaining, reset) in [("1", "6m0s"), ("0", "soon"), ("0", "1e300h"), ("0", "-1s"), ("many", "1s")] {
            assert_eq!(allowed(remaining, reset), None, "{remaining}, {reset}");
        }
        let both = [
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "3s"),
        ];
        assert_eq!(wait(&both), Some(3.0));
        assert_eq!(wait(&[both.as_slice(), &[("retry-after", "2")]].concat()), Some(2.0));
        assert_eq!(wait(&[]), None);
    }

    #[test]
    fn an_address_is_shown_once() {
        let of = |url: &str, body_text: &str| {
            let endpoint = Endpoint::new(url, vec![], None, false, None).unwrap();
            let error = TransportError::Connect(ConnectError::Failed(body_text.into()));
            let reason = SendError::from_transport(&endpoint, &error).failure.reason;
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
        assert!(long.ends_with("öö…") && long.len() < 400, "{long}");
    }

    #[test]
    fn mistakes_with_certificates_are_explained() {
        let of = |why: &str| {
            let error = TransportError::Connect(ConnectError::Failed(why.into()));
            SendError::from_transport(&endpoint(), &error).failure.reason
        };
        assert!(of("invalid peer certificate: UnknownIssuer").ends_with("as ca_file=)"));
        assert!(of("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))").ends_with("CA:FALSE)"));
        assert!(of("received corrupt message of type InvalidContentType").ends_with("http://?)"));
        assert!(of("Connection reset by peer").ends_with("by peer"));
    }

    #[test]
    fn no_key_in_a_reason() {
        let body_text = br#"{"error": "Incorrect API key: sk-very-secret"}"#;
        let error = SendError::from_status(&endpoint(), StatusCode::UNAUTHORIZED, &HeaderMap::new(), body_text);
        let reason = error.failure.reason;
        assert!(!reason.contains("very-secret"), "{reason}");
        assert!(reason.starts_with("judge.local answered 401 Unauthorized (check the API key): "), "{reason}");
    }

    #[test]
    fn a_404_of_an_address_without_a_version_says_what_may_be_missing() {
        let reason = |url: &str| {
            let endpoint = Endpoint::new(url, vec![], None, false, None).unwrap();
            SendError::from_status(&endpoint, StatusCode::NOT_FOUND, &HeaderMap::new(), b"").failure.reason
        };
        let hint = " (is the address complete? base_url= of most servers ends with /v1)";
        assert_eq!(reason("http://judge.local/chat/completions"), format!("judge.local answered 404 Not Found{hint}"));
        for url in ["http://judge.local/v1/chat/completions", "http://judge.local/score"] {
            assert_eq!(reason(url), "judge.local answered 404 Not Found");
        }
    }
}
