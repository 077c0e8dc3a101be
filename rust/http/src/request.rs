//! Sends one request and reads its response.
//!
//! - It ends within its function's timeout, response included, wherever it hangs.
//! - A response is read up to a bound: an endless one is an error, not memory.
//! - One longer than `SHORT` takes a permit of `Member::long_responses`; waiting for it counts as
//!   timeout.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::outcome::{Answer, Cell, Failure};
use guerdon_core::timeout_messages::{no_answer, no_connection, timed_out};
use http_body_util::BodyExt;
use hyper::Version;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::answer_stream::{AnswerStream, StreamEnd};
use crate::api_key::NoOtherKey;
use crate::connector::TransportError;
use crate::dialect::sandbox::{self, NoRun, SandboxRun};
use crate::endpoint::Endpoint;
use crate::fleet::{FleetRequest, HedgePermit, Member, SendError};
use crate::meter::{Meter, MeteredRequest};
use crate::parse::ScoreParser;
use crate::pool::{Exchange, Pool};
use crate::progress::Progress;
use crate::quote::quoted;
use crate::request_body::RequestBody;
use crate::response::{ResponseParser, Scores, judged};

/// The longest response that is read.
const LONGEST_RESPONSE: usize = 16 << 20;
/// Longer responses take a permit: scores and lists of them are shorter.
const SHORT: usize = 64 << 10;
/// Longest part of an error response that is read, with the time for it: more than a reason shows.
const LONGEST_ERROR: usize = 8 << 10;
const ERROR_WITHIN: Duration = Duration::from_secs(1);
/// Keys that a request is sent with, one after the other, while its server refuses them.
const KEYS: usize = 3;

/// A request for the scores of `samples` samples.
pub struct ScoreRequest<'a> {
    /// Gives leave to send it a second time.
    pub second: &'a (dyn Fn() -> Option<HedgePermit> + Sync),
    /// Server of the last request, for dumps. Written by `send`.
    pub server: &'a Mutex<Arc<str>>,
    pub parser: &'a ResponseParser,
    pub body: RequestBody,
    pub samples: usize,
    pub meter: &'a Meter<'a>,
    /// For messages: the time that its fleet gave it.
    pub timeout: Duration,
}

impl FleetRequest<Scores> for ScoreRequest<'_> {
    async fn send(&self, at: &Member, until: Instant) -> Result<Scores, SendError> {
        let Self { parser, body, samples, meter, timeout, .. } = self;
        self.server.lock().clone_from(&at.host);
        let (limits, place) = ((until, *timeout), (&at.endpoint, &*at.pool, &*at.long_responses));
        let Some(key) = &at.endpoint.key else { return send(place, parser, body, *samples, meter, limits).await };
        let (mut refused, mut ended, mut waited) = (None, None, Duration::ZERO);
        // Keys may be replaced while requests are under way, again and again.
        for _ in 0..KEYS {
            let asked = Instant::now();
            let used = match (key.other_than(refused.as_ref()).await, ended) {
                (Ok(other), _) => other,
                (Err(NoOtherKey::Same), Some(ended)) => return ended,
                (Err(why), _) => return Err(SendError::without_key(why)),
            };
            waited += asked.elapsed();
            let sent = send(place, parser, body, *samples, meter, (until + waited, *timeout)).await;
            if sent.as_ref().err().and_then(|error| error.failure.answer) != Some(Answer::Status(401)) {
                return sent;
            }
            (refused, ended) = (Some(used), Some(sent));
        }
        ended.unwrap_or_else(|| Err(SendError::without_key(NoOtherKey::Same)))
    }

    fn second(&self) -> Option<HedgePermit> {
        (self.second)()
    }
}

/// Sends `body` and reads the scores of `samples` samples.
async fn send(
    at: (&Endpoint, &Pool, &Semaphore),
    parser: &ResponseParser,
    body: &RequestBody,
    samples: usize,
    meter: &Meter<'_>,
    (until, timeout): (Instant, Duration),
) -> Result<Scores, SendError> {
    let (asked, progress) = (Instant::now(), Progress::new());
    // It would cost more than it may, so it is not sent.
    let refused = |why| SendError { failure: Failure::error(why), unsent: false };
    let metered = meter.begin(body.len(), &progress).await.map_err(refused)?;
    // While it waits for the costs of others, the server has not been asked.
    let begun = Instant::now();
    let until = until + (begun - asked);
    match tokio::time::timeout_at(until, exchange(at, parser, body, samples, metered, &progress)).await {
        Ok(scores) => scores.map_err(|mut error| {
            if let Some(proxy) = at.1.proxy() {
                error.failure.reason.push_str(&format!(" (through the proxy {proxy})"));
            }
            error
        }),
        Err(_) => {
            let (endpoint, pool, _) = at;
            if progress.is_unanswered() {
                pool.purge(begun);
            }
            let how_far = progress.describe(&endpoint.host());
            if progress.is_connected() {
                let failure = timed_out(format!("{}; {how_far}", no_answer(timeout)), None);
                return Err(SendError { failure, unsent: false });
            }
            let failure = timed_out(format!("{}; {how_far}", no_connection(timeout)), None);
            Err(SendError { failure: Failure { answer: Some(Answer::Unreachable), ..failure }, unsent: true })
        }
    }
}

async fn exchange<'a>(
    (endpoint, pool, long_responses): (&'a Endpoint, &Pool, &Semaphore),
    parser: &ResponseParser,
    body: &RequestBody,
    samples: usize,
    mut metered: MeteredRequest<'a>,
    progress: &Progress,
) -> Result<Scores, SendError> {
    metered.redact_by(endpoint);
    let broken = |error: &TransportError| SendError::from_transport(endpoint, error);
    let invalid = |why: &str| SendError::invalid_response(endpoint, why);
    let Exchange { response, connection } = pool.send(endpoint, body, progress).await.map_err(|error| {
        let error = broken(&error);
        if error.unsent {
            metered.unsent();
        }
        error
    })?;
    progress.received(0);
    let (head, mut incoming) = response.into_parts();
    metered.responded(&head.headers);
    if let ResponseParser::Judge { api, parser } = parser
        && head.status.is_success()
        && is_stream(&head.headers)
    {
        let mut stream = AnswerStream::new(*api);
        let end = read_stream(&mut stream, &mut incoming, parser, progress, long_responses).await;
        if let StreamEnd::Broken(Some(error)) = end {
            return Err(broken(&TransportError::Exchange(error)));
        }
        metered.answered(stream.answer.usage);
        return match end {
            StreamEnd::Decided(cell) => {
                metered.keep(stream.answer);
                Ok(Scores { cells: vec![cell], ..Scores::default() })
            }
            StreamEnd::Whole => {
                connection.release().await;
                judged(parser, stream.answer, b"", samples, &mut metered).map_err(|why| invalid(&why))
            }
            StreamEnd::Broken(_) => {
                let beginning = stream.answer.text.unwrap_or_default();
                Err(invalid(&format!("a stream that breaks off after {}", quoted(&beginning))))
            }
            StreamEnd::Wrong(why) => Err(invalid(&why)),
        };
    }
    let (mut body, mut permit) = (Vec::new(), None);
    if !head.status.is_success() {
        metered.refused();
        let read = read(&mut incoming, &mut body, LONGEST_ERROR, progress, long_responses, &mut permit);
        // The status says enough, even if its body breaks or never ends.
        if let Ok(None) = tokio::time::timeout(ERROR_WITHIN, read).await {
            connection.release().await;
        }
        return Err(SendError::from_status(endpoint, head.status, &head.headers, &body));
    }
    match read(&mut incoming, &mut body, LONGEST_RESPONSE, progress, long_responses, &mut permit).await {
        None => connection.release().await,
        Some(ReadStop::Broken(error)) => return Err(broken(&TransportError::Exchange(error))),
        Some(ReadStop::TooLong) if matches!(parser, ResponseParser::Sandbox) => {
            metered.answered(None);
            return Ok(Scores { run: Some(SandboxRun::TOO_LONG), ..Scores::default() });
        }
        Some(ReadStop::TooLong) => {
            return Err(invalid(&format!("more than {LONGEST_RESPONSE} bytes, too long for a score")));
        }
    }
    if let Some(coding) = head.headers.get(CONTENT_ENCODING).filter(|coding| !is_plain(coding)) {
        let coding = quoted(coding.to_str().unwrap_or("an unknown coding"));
        return Err(invalid(&format!("an answer in {coding}, an encoding that was not requested")));
    }
    if ends_with_connection(head.version, &head.headers) && body.trim_ascii_end().last().is_some_and(u8::is_ascii_digit)
    {
        return Err(invalid(&format!(
            "{}, which ends in a number and with its connection: it may be cut off (let the server send Content-Length)",
            quoted(&String::from_utf8_lossy(&body))
        )));
    }
    if matches!(parser, ResponseParser::Sandbox) {
        metered.answered(None);
        let run = sandbox::read(&body).map_err(|none| match none {
            NoRun::Failed(why) => SendError::server_failed(endpoint, &why),
            NoRun::Unreadable(why) => invalid(&why),
        })?;
        return Ok(Scores { run: Some(run), ..Scores::default() });
    }
    let mut scores = parser
        .read(&body, samples, &mut metered)
        .map_err(|why| SendError::from_body(endpoint, &head.headers, &body).unwrap_or_else(|| invalid(&why)))?;
    for cell in &mut scores.cells {
        match cell {
            Cell::Invalid(why) => *why = invalid(why).failure.reason,
            Cell::Reported(reported) => {
                reported.1 = endpoint.redact(&format!("{}: {}", endpoint.host(), reported.1));
            }
            Cell::Value(_) | Cell::Abstained => {}
        }
    }
    Ok(scores)
}

/// Returns whether nothing but the end of the connection says where the body ends.
fn ends_with_connection(version: Version, headers: &HeaderMap) -> bool {
    let says = headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
    version < Version::HTTP_2 && !says
}

/// Server-sent events.
fn is_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// Reads a streamed answer until its score is certain, or to its end.
async fn read_stream(
    stream: &mut AnswerStream,
    incoming: &mut Incoming,
    parser: &ScoreParser,
    progress: &Progress,
    long_responses: &Semaphore,
) -> StreamEnd {
    let mut permit = None;
    loop {
        let end = stream.next(incoming, parser, LONGEST_RESPONSE).await;
        progress.received(stream.received);
        match end {
            None if stream.received > SHORT && permit.is_none() => {
                permit = long_responses.acquire().await.ok(); // nobody closes it
            }
            None => {}
            Some(end) => return end,
        }
    }
}

fn is_plain(coding: &HeaderValue) -> bool {
    coding.is_empty() || coding.as_bytes().eq_ignore_ascii_case(b"identity")
}

/// Why a response was not read to its end.
enum ReadStop {
    Broken(hyper::Error),
    TooLong,
}

/// Reads the bytes of a response into `body`, up to a bound; a long one keeps its `permit` until
/// that is dropped.
async fn read<'a>(
    incoming: &mut Incoming,
    body: &mut Vec<u8>,
    longest: usize,
    progress: &Progress,
    long_responses: &'a Semaphore,
    permit: &mut Option<SemaphorePermit<'a>>,
) -> Option<ReadStop> {
    if longest == LONGEST_RESPONSE && incoming.size_hint().lower() > longest as u64 {
        return Some(ReadStop::TooLong);
    }
    loop {
        match incoming.frame().await {
            Some(Ok(frame)) => {
                if let Some(bytes) = frame.data_ref() {
                    body.extend_from_slice(bytes);
                }
            }
            None => return None,
            Some(Err(error)) => return Some(ReadStop::Broken(error)),
        }
        progress.received(body.len());
        if body.len() > longest {
            return Some(ReadStop::TooLong);
        }
        if body.len() > SHORT && permit.is_none() {
            *permit = long_responses.acquire().await.ok(); // nobody closes it
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use guerdon_core::clock::Clock;
    use guerdon_core::outcome::FailureKind;
    use guerdon_core::spending::{Cap, Spending};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::meter::Tariff;

    /// A server whose answers are the score 1 after as many spaces as the request has bytes.
    async fn server() -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut came = vec![0; 1 << 20];
                    let length = loop {
                        let count = stream.read(&mut came).await?;
                        let text = String::from_utf8_lossy(&came[..count]).into_owned();
                        if let Some((_, body)) = text.split_once("\r\n\r\n") {
                            break body.trim().parse::<usize>().unwrap_or(0);
                        }
                    };
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", length + 1);
                    stream.write_all(head.as_bytes()).await?;
                    stream.write_all(&vec![b' '; length]).await?;
                    stream.write_all(b"1").await
                });
            }
        });
        Endpoint::new(&url, Vec::new(), None, false, None).unwrap()
    }

    #[tokio::test]
    async fn a_wait_for_the_first_cost_is_no_time_of_the_request() {
        let (endpoint, permits) = (server().await, Semaphore::new(1));
        let pool = Pool::new(&endpoint, 3).unwrap();
        let cap = Cap { max_cost: 1.0, whose: "of 'f'".to_owned(), shared: None };
        let tariff = Tariff { caps: vec![Arc::new(Spending::new(cap))], ..Tariff::default() };
        let (meter, first) = (Meter::new(&tariff, Clock::start()), Progress::new());
        let in_flight = meter.begin(0, &first).await.unwrap();
        let (timeout, none) = (Duration::from_millis(300), RequestBody::from(Vec::new()));
        let parser = ResponseParser::Rewards { path: None };
        let limits = (Instant::now() + timeout, timeout);
        let waits = send((&endpoint, &pool, &permits), &parser, &none, 1, &meter, limits);
        let ends = async {
            tokio::time::sleep(2 * timeout).await;
            drop(in_flight);
        };
        let (scores, ()) = tokio::join!(waits, ends);
        assert!(scores.is_ok(), "{:?}", scores.err().map(|error| error.failure.reason));
    }

    #[tokio::test]
    async fn long_responses_are_read_with_a_permit() {
        let (endpoint, permit) = (server().await, Semaphore::new(1));
        let pool = Pool::new(&endpoint, 3).unwrap();
        let parser = ResponseParser::Rewards { path: None };
        let tariff = Tariff::default();
        let meter = Meter::new(&tariff, Clock::start());
        let score = |length: usize, timeout_ms| {
            let (endpoint, pool, permits, parser, meter) = (&endpoint, &pool, &permit, &parser, &meter);
            async move {
                let asked = length.to_string().into_bytes().into();
                let timeout = Duration::from_millis(timeout_ms);
                send((endpoint, pool, permits), parser, &asked, 1, meter, (Instant::now() + timeout, timeout)).await
            }
        };
        let taken = permit.acquire().await.unwrap();
        assert!(score(1000, 20_000).await.is_ok(), "a short one needs none");
        let late = score(1 << 20, 300).await.unwrap_err().failure;
        assert!(late.kind == FailureKind::Timeout && late.reason.contains(" bytes of its answer"), "{}", late.reason);
        drop(taken);
        let (one, two) = tokio::join!(score(1 << 20, 20_000), score(1 << 20, 20_000));
        assert!(one.is_ok() && two.is_ok(), "one after the other");
        assert_eq!(permit.available_permits(), 1);
    }

    /// One has the permit, the others wait for it on the same connection, and all are sent bit by
    /// bit.
    #[tokio::test]
    async fn long_responses_of_one_connection_do_not_hold_each_other_up() {
        const PIECE: usize = 16 << 10;
        const PIECES: usize = 200;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(listener.accept().await.unwrap().0).await.unwrap();
            let mut all = Vec::new();
            while let Some(Ok((_, respond))) = connection.accept().await {
                all.push(respond);
                for mut respond in all.drain(..all.len() / 4 * 4) {
                    let mut body = respond.send_response(hyper::Response::new(()), false).unwrap();
                    tokio::spawn(async move {
                        for piece in 1..=PIECES {
                            body.reserve_capacity(PIECE);
                            while body.capacity() < PIECE {
                                poll_fn(|context| body.poll_capacity(context)).await.unwrap().unwrap();
                            }
                            let last = piece == PIECES;
                            body.send_data(vec![if last { b'1' } else { b' ' }; PIECE].into(), last).unwrap();
                        }
                    });
                }
            }
        });
        let endpoint = Endpoint::new(&url, Vec::new(), None, true, None).unwrap();
        let (pool, permits) = (Pool::new(&endpoint, 4).unwrap(), Semaphore::new(1));
        let parser = ResponseParser::Rewards { path: None };
        let timeout = Duration::from_secs(60);
        let tariff = Tariff::default();
        let meter = Meter::new(&tariff, Clock::start());
        let none = RequestBody::from(Vec::new());
        let score =
            || send((&endpoint, &pool, &permits), &parser, &none, 1, &meter, (Instant::now() + timeout, timeout));
        let (one, two, three, four) = tokio::join!(score(), score(), score(), score());
        for scores in [one, two, three, four] {
            // It is not a reward: what counts is that all of it came.
            assert_ne!(scores.err().map(|error| error.failure.kind), Some(FailureKind::Timeout));
        }
    }
}
