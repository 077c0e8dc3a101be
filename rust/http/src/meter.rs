//! Usage of a call's requests: counted one by one, whatever becomes of the call.
//!
//! - A request counts once it may have been sent; one whose answer never came, or does not say,
//!   counts as unknown, also when it is dropped in mid-flight.
//! - Answers other than successes cost nothing. Nothing is counted twice.
//! - Under a cap each request asks first, and is refused once the cap is reached; what is unknown
//!   counts there by estimate.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::member_call::ANSWER;
use guerdon_core::report::{Report, Usage};
use guerdon_core::spending::{Admission, Cost, Price, Reserve, Spending};
use hyper::header::HeaderMap;
use parking_lot::Mutex;

use crate::dialect::{self, JudgeAnswer};
use crate::endpoint::Endpoint;
use crate::kept_answers::KeptAnswers;
use crate::progress::Progress;

/// Pause before a cap that could not answer is asked again, at first and at last.
const ASK_AGAIN: Duration = Duration::from_millis(1);
const ASK_AGAIN_LATE: Duration = Duration::from_millis(50);
/// Headers that name a request: OpenAI's, which most servers have, and Anthropic's.
const ID_HEADERS: [&str; 2] = ["x-request-id", "request-id"];
/// Bytes of a token, about, for requests whose cost nobody knows yet.
const BYTES_OF_A_TOKEN: f64 = 4.0;
/// Tokens of an answer without a bound, for these.
const LONG_ANSWER: f64 = 4096.0;

/// Prices of a function's requests, the spending cap, and whether answers are kept.
#[derive(Clone, Debug, Default)]
pub struct Tariff {
    pub price: Option<Price>,
    /// The function's own cap and the dispatcher's; they need a price.
    pub caps: Vec<Arc<Spending>>,
    pub keep_answers: bool,
    /// Tokens that an answer has at most, where the request says so.
    pub longest_answer: Option<u32>,
}

impl Tariff {
    /// Why no request may go any more, if so.
    #[must_use]
    pub fn exhausted(&self, clock: Clock) -> Option<String> {
        self.caps.iter().find_map(|cap| cap.exhausted(clock.now_ns()))
    }

    /// Returns the highest cost of a request of this size.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a request")]
    fn reserve(&self, bytes: usize) -> Reserve {
        let output = self.longest_answer.map_or(LONG_ANSWER, f64::from);
        let cost = |price: &Price| (bytes as f64 / BYTES_OF_A_TOKEN * price.input + output * price.output) / 1e6;
        Reserve { most: self.price.as_ref().map_or(0.0, cost), bounded: self.longest_answer.is_some() }
    }
}

/// Counts the requests of one attempt of a call.
pub struct Meter<'a> {
    tariff: &'a Tariff,
    clock: Clock,
    counted: Mutex<RequestCounts>,
}

#[derive(Default)]
struct RequestCounts {
    usage: Usage,
    /// The server's sum of them, if it has one.
    tokens: Option<f64>,
    answers: KeptAnswers,
    /// The messages that repair an answer that could not be read.
    repair: Option<Vec<u8>>,
    /// The answer that a function of the user is to read.
    to_parse: Option<String>,
}

impl<'a> Meter<'a> {
    pub fn new(tariff: &'a Tariff, clock: Clock) -> Self {
        Self { tariff, clock, counted: Mutex::default() }
    }

    /// Starts a request whose body has `bytes` bytes; `Err` says why it may not go. It does not
    /// count if it is dropped before its `progress` reached a connection.
    pub async fn begin<'b>(&'b self, bytes: usize, progress: &'b Progress) -> Result<MeteredRequest<'b>, String> {
        let mut request = MeteredRequest {
            meter: self,
            progress: Some(progress),
            caps: 0,
            most: 0.0,
            open: true,
            id: None,
            endpoint: None,
        };
        let reserve = self.tariff.reserve(bytes);
        request.most = reserve.most;
        for cap in &self.tariff.caps {
            let mut pause = ASK_AGAIN;
            loop {
                match cap.admit(self.clock.now_ns(), &reserve) {
                    Admission::Yes => break,
                    Admission::Refused(reason) => {
                        request.unsent();
                        return Err(reason);
                    }
                    Admission::Busy => {
                        tokio::time::sleep(pause).await;
                        pause = (2 * pause).min(ASK_AGAIN_LATE);
                    }
                }
            }
            request.caps += 1;
        }
        Ok(request)
    }

    /// A request that asks no cap.
    #[cfg(test)]
    pub fn uncapped(&self) -> MeteredRequest<'_> {
        MeteredRequest { meter: self, progress: None, caps: 0, most: 0.0, open: true, id: None, endpoint: None }
    }

    /// Returns the counts, to be reported once.
    pub fn report(&self) -> Report {
        let RequestCounts { usage, answers, to_parse, .. } = std::mem::take(&mut *self.counted.lock());
        let mut report = Report { usage, ..Report::default() };
        answers.report(&mut report);
        if let Some(answer) = to_parse {
            report.add(0, ANSWER, answer);
        }
        report
    }

    /// The messages for another attempt, where the answer of this one could not be read.
    pub fn repair(&self) -> Option<Vec<u8>> {
        self.counted.lock().repair.take()
    }

    /// Tokens of all requests, as servers add them up, where any did.
    pub fn tokens(&self) -> Option<f64> {
        self.counted.lock().tokens
    }
}

/// A request in flight. Dropped without an answer it counts as unknown, if it may have been sent.
pub struct MeteredRequest<'a> {
    meter: &'a Meter<'a>,
    progress: Option<&'a Progress>,
    /// Number of caps that have admitted it.
    caps: usize,
    /// Its highest cost.
    most: f64,
    open: bool,
    /// Id in the response's headers.
    id: Option<String>,
    /// Its endpoint, whose key no answer that is kept may show.
    endpoint: Option<&'a Endpoint>,
}

impl<'a> MeteredRequest<'a> {
    /// Says where it goes.
    pub const fn redact_by(&mut self, endpoint: &'a Endpoint) {
        self.endpoint = Some(endpoint);
    }

    /// Its answer can't be read; keeps the messages to the judge.
    pub fn unreadable(&self, messages: Vec<u8>) {
        self.meter.counted.lock().repair = Some(messages);
    }

    /// A function of the user is to read its answer.
    pub fn to_parse(&self, answer: &str) {
        let answer = self.endpoint.map_or_else(|| answer.to_owned(), |endpoint| endpoint.redact(answer));
        self.meter.counted.lock().to_parse = Some(answer);
    }

    /// It found no server, and does not count.
    pub fn unsent(&mut self) {
        self.end(Usage::default(), Cost::Free);
    }

    /// The server refused or failed it, at no cost.
    pub fn refused(&mut self) {
        self.end(Usage { requests: 1, ..Usage::default() }, Cost::Free);
    }

    /// Notes that it was answered, with its usage, if the server has one.
    #[expect(clippy::cast_precision_loss, reason = "tokens of a request")]
    pub fn answered(&mut self, tokens: Option<dialect::Usage>) {
        let Some(tokens) = tokens else { return self.unknown() };
        let mut usage = Usage {
            requests: 1,
            prompt_tokens: tokens.prompt,
            cached_tokens: tokens.cached,
            completion_tokens: tokens.completion,
            reasoning_tokens: tokens.reasoning,
            ..Usage::default()
        };
        let cost = self.meter.tariff.price.map(|price| price.of(&usage, tokens.written));
        usage.cost = cost.unwrap_or(0.0);
        self.end(usage, cost.map_or(Cost::Free, Cost::Known));
        *self.meter.counted.lock().tokens.get_or_insert(0.0) += tokens.total as f64;
    }

    /// The head of its response came: what the server calls it, for an answer that does not say.
    pub fn responded(&mut self, headers: &HeaderMap) {
        if self.meter.tariff.keep_answers {
            let id = ID_HEADERS.iter().find_map(|name| headers.get(*name)?.to_str().ok());
            self.id = id.map(str::to_owned);
        }
    }

    /// Keeps the judge's text, if that is wanted.
    pub fn keep(&mut self, mut answer: JudgeAnswer) {
        if self.meter.tariff.keep_answers {
            answer.request_id = answer.request_id.or(self.id.take());
            if let Some(endpoint) = self.endpoint {
                let JudgeAnswer { text, reasoning, refusal, finish_reason, model, request_id, .. } = &mut answer;
                for field in [text, reasoning, refusal, finish_reason, model, request_id].into_iter().flatten() {
                    *field = endpoint.redact(field);
                }
            }
            self.meter.counted.lock().answers.push(answer);
        }
    }

    fn unknown(&mut self) {
        let cost = Cost::Unknown { most: self.most };
        self.end(Usage { requests: 1, unknown: 1, ..Usage::default() }, cost);
    }

    fn end(&mut self, usage: Usage, cost: Cost) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let Meter { tariff, clock, counted } = self.meter;
        counted.lock().usage += usage;
        for cap in &tariff.caps[..self.caps] {
            cap.complete(clock.now_ns(), cost);
        }
    }
}

impl Drop for MeteredRequest<'_> {
    fn drop(&mut self) {
        if self.progress.is_some_and(|progress| !progress.is_connected()) {
            self.unsent();
        } else {
            self.unknown();
        }
    }
}

#[cfg(test)]
mod tests {
    use guerdon_core::spending::Cap;

    use super::*;
    use crate::api_key::KeySource;

    fn tokens(prompt: u64, completion: u64) -> Option<dialect::Usage> {
        Some(dialect::Usage { prompt, completion, total: prompt + completion, ..dialect::Usage::default() })
    }

    fn connected() -> Progress {
        let progress = Progress::new();
        progress.connected();
        progress
    }

    fn capped(max_cost: f64) -> Tariff {
        let cap =
            |whose: &str, max_cost| Arc::new(Spending::new(Cap { max_cost, whose: whose.to_owned(), shared: None }));
        let price = Some(Price { input: 1e6, cached: 1e5, written: 1e6, output: 2e6 });
        Tariff {
            price,
            caps: vec![cap("of 'f'", max_cost), cap("of the dispatcher", 10.0)],
            keep_answers: false,
            longest_answer: None,
        }
    }

    #[tokio::test]
    async fn each_request_counts_once_however_it_ends() {
        let tariff = Tariff::default();
        let meter = Meter::new(&tariff, Clock::start());
        let sent = connected();
        meter.begin(0, &sent).await.unwrap().unsent();
        meter.begin(0, &sent).await.unwrap().refused();
        meter.begin(0, &sent).await.unwrap().answered(tokens(5, 1));
        meter.begin(0, &sent).await.unwrap().answered(None);
        drop(meter.begin(0, &sent).await.unwrap());
        drop(meter.begin(0, &Progress::new()).await.unwrap());
        let used = Usage { requests: 4, unknown: 2, prompt_tokens: 5, completion_tokens: 1, ..Usage::default() };
        assert_eq!((meter.tokens(), meter.report().usage), (Some(6.0), used));
        assert!(meter.report().is_empty(), "it is reported once");
    }

    #[test]
    fn answers_are_kept_without_the_key() {
        let key = KeySource::Text("sk-very-secret".to_owned());
        let endpoint = Endpoint::new("http://judge.local/v1", vec![], Some(key), false, None).unwrap();
        let tariff = Tariff { keep_answers: true, ..Tariff::default() };
        let meter = Meter::new(&tariff, Clock::start());
        let mut request = meter.uncapped();
        request.redact_by(&endpoint);
        let echoed = || Some("7 by sk-very-secret".to_owned());
        request.keep(JudgeAnswer { text: echoed(), model: echoed(), request_id: echoed(), ..JudgeAnswer::default() });
        drop(request);
        let shown = format!("{:?}", meter.report());
        assert!(shown.contains("7 by …") && !shown.contains("secret"), "{shown}");
    }

    #[tokio::test]
    async fn requests_beyond_a_cap_are_refused_and_leave_no_trace_in_the_others() {
        let tariff = capped(6.0);
        let meter = Meter::new(&tariff, Clock::start());
        let sent = connected();
        meter.begin(0, &sent).await.unwrap().answered(tokens(1, 1));
        let (one, two) = (meter.begin(0, &sent).await, meter.begin(0, &sent).await);
        let (mut one, two) = (one.unwrap(), two.map(|_| ()).unwrap_err());
        assert!(two.contains("max_cost=6 of 'f' is reached: 3.000000 spent on 1 requests, 1 more in flight"), "{two}");
        assert_eq!(tariff.exhausted(Clock::start()), None);
        one.answered(tokens(1, 1));
        assert!(tariff.exhausted(Clock::start()).unwrap().contains("of 'f'"));
        let dispatcher = tariff.caps[1].admit(0, &Reserve::default());
        assert_eq!(dispatcher, Admission::Yes, "it has spent 6 of 10, with nothing in flight");
    }

    #[tokio::test]
    async fn a_dispatchers_cap_refuses_too_and_the_functions_goes_on() {
        let tariff = capped(100.0);
        let meter = Meter::new(&tariff, Clock::start());
        let sent = connected();
        for _ in 0..3 {
            meter.begin(0, &sent).await.unwrap().answered(tokens(1, 1));
        }
        let refused = meter.begin(0, &sent).await.map(|_| ()).unwrap_err();
        assert!(refused.contains("max_cost=10 of the dispatcher is reached"), "{refused}");
        assert_eq!(tariff.caps[0].admit(0, &Reserve::default()), Admission::Yes);
        assert_eq!(meter.report().usage.requests, 3, "a request that is refused here was never made");
    }
}
