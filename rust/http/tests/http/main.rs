//! The http lane against the mock judge, over real sockets.

mod composites;
mod http2;
mod limits;
mod rig;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use guerdon_core::lane::Lane;
use guerdon_core::outcome::Status;
use guerdon_http::Endpoint;
use guerdon_testkit::judge::{Certificate, JudgeConfig, Latency, MockJudge};
use rig::{Rig, chat, done, endpoint, outcomes, policy, rewards};

const SECOND: Duration = Duration::from_secs(1);
const PATH: &str = "/v1/chat/completions";

#[expect(clippy::expect_used, reason = "a test can't go on without its server")]
async fn mock(config: JudgeConfig) -> MockJudge {
    MockJudge::start(config).await.expect("a port of this machine is free")
}

async fn judged(config: JudgeConfig, retries: u16) -> (MockJudge, Rig) {
    let judge = mock(config).await;
    let rig = Rig::new(chat(endpoint(&judge, PATH)), policy(20 * SECOND, retries, 64));
    (judge, rig)
}

fn texts(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("[[score {index}]] \\ \"quoted\"\n")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_sample_gets_its_own_score() {
    // The last server does not offer HTTP/2, which is asked for.
    for (tls, offered, http2) in
        [(false, false, false), (true, false, false), (false, true, true), (true, true, true), (true, false, true)]
    {
        let latency = Latency::Uniform(Duration::ZERO, SECOND / 50);
        let judge = mock(JudgeConfig { tls, http2: offered, latency, ..Default::default() }).await;
        let rig = Rig::new(chat(endpoint(&judge, PATH).with_http2(http2)), policy(20 * SECOND, 0, 64));
        let batch = done(rig.submit(&texts(300), None)).await;
        for (index, (status, value, reason)) in outcomes(&batch).into_iter().enumerate() {
            assert_eq!((status, value), (Status::Ok, index as f64), "tls {tls}, http2 {offered} {http2}: {reason}");
        }
        let seen = judge.seen();
        assert!(seen.most_in_flight.load(Ordering::Relaxed) <= 64);
        let connections = seen.connections.load(Ordering::Relaxed);
        assert!(if offered { connections == 1 } else { connections <= 64 }, "{connections} connections");
        assert!(judge.bodies()[0].contains(r#"]] \\ \"quoted\"\n"}]}"#), "{}", judge.bodies()[0]);
        rig.scheduler.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_fails_its_sample_with_its_reason() {
    let (_judge, rig) = judged(JudgeConfig::default(), 0).await;
    let cases = [
        ("[[score 7]]", "7"),
        ("[[status 500]]", "answered 500 Internal Server Error: \"{\\\"error\\\": \\\"as asked\\\"}\""),
        ("[[status 404]]", "answered 404 Not Found"),
        ("[[status 503]]", "answered 503 Service Unavailable"),
        ("[[reset]]", "ConnectionError: 127.0.0.1"),
        ("[[truncated]]", "ConnectionError: 127.0.0.1"),
        ("[[bad-json]]", "returned invalid JSON"),
        ("[[says nothing at all]]", "returned no number in the answer \"nothing at all\""),
        ("[[redirect]]", "answered 307 Temporary Redirect (redirects are not followed"),
        ("[[echo-key]]", "answered 401 Unauthorized (check the API key): \"wrong key: Bearer …\""),
        ("[[score 8]]", "8"),
    ];
    let asked: Vec<&str> = cases.iter().map(|(text, _)| *text).collect();
    for ((text, expected), (status, value, reason)) in cases.iter().zip(rig.score(&asked).await) {
        if let Ok(number) = expected.parse::<f64>() {
            assert_eq!((status, value), (Status::Ok, number), "{text}: {reason}");
        } else {
            assert!(
                status == Status::Error && value.is_nan() && reason.contains(expected),
                "{text}: {status:?} {reason}"
            );
        }
        assert!(!reason.contains("very-secret"), "{reason}");
    }
    rig.scheduler.close().await;
}

/// Fault: a judge's server answers 500, resets, breaks off or sends no JSON, once
/// Sees: its value, at the second attempt
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_requests_are_retried_unless_hopeless() {
    let hopeless =
        ["[[status 400]]", "[[status 401]]", "[[status 403]]", "[[status 404]]", "[[status 422]]", "[[redirect]]"];
    let (judge, rig) = judged(JudgeConfig::default(), 2).await;
    assert!(rig.score(&hopeless).await.iter().all(|(status, ..)| *status == Status::Error));
    assert_eq!(judge.seen().requests.load(Ordering::Relaxed), 6, "one attempt each");
    let once = [
        "[[status 500 once]]",
        "[[reset once]]",
        "[[truncated once]]",
        "[[bad-json once]]",
        "[[status 429 0.05 once]]",
    ];
    for (text, (status, value, reason)) in once.iter().zip(rig.score(&once).await) {
        assert_eq!((status, value), (Status::Ok, 5.0), "{text}: {reason}");
    }
    let before = judge.seen().requests.load(Ordering::Relaxed);
    assert_eq!(before, 6 + 10);
    // A server that has answered lost its router or its key: no fault of the samples.
    assert!(rig.score(&hopeless).await.iter().all(|(status, ..)| *status == Status::Error));
    assert_eq!(judge.seen().requests.load(Ordering::Relaxed) - before, 2 + 4 * 3, "400 and 422 once");
    rig.scheduler.close().await;
}

/// The end of one request, without a retry, and the reason of its failure.
async fn asked(endpoint: Endpoint) -> (Status, String) {
    let rig = Rig::new(chat(endpoint), policy(20 * SECOND, 0, 64));
    let (status, _, reason) = rig.score(&["x"]).await.remove(0);
    rig.scheduler.close().await;
    (status, reason)
}

/// Fault: a judge's certificate is signed by nobody that this machine trusts
/// Sees: `error` after `retries`: can't connect, and that the authority can be given as `ca_file=`;
/// nothing is sent
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_nobody_trusts_is_refused() {
    let judge = mock(JudgeConfig { tls: true, ..Default::default() }).await;
    let untrusting = Endpoint::new(&judge.url(PATH), Vec::new(), None, false, None).unwrap();
    let (status, reason) = asked(untrusting).await;
    assert!(status == Status::Error && reason.contains("can't connect to localhost"), "{reason}");
    assert!(reason.contains("pass the authority's certificate as ca_file="), "{reason}");
    assert_eq!(judge.seen().requests.load(Ordering::Relaxed), 0);
}

/// Fault: a judge's certificate has expired, or is another host's
/// Sees: `error` after `retries`: can't connect, and what is wrong with it; nothing is sent
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_does_not_hold_is_refused() {
    let cases = [
        (Certificate::Expired, "certificate expired"),
        (Certificate::AnotherHosts, "certificate not valid for name \"localhost\""),
    ];
    for (certificate, why) in cases {
        let judge = mock(JudgeConfig { tls: true, certificate, ..Default::default() }).await;
        let (status, reason) = asked(endpoint(&judge, PATH)).await;
        assert!(status == Status::Error && reason.contains("can't connect to localhost"), "{reason}");
        assert!(reason.contains(why), "{reason}");
        assert_eq!(judge.seen().requests.load(Ordering::Relaxed), 0);
    }
}

/// Fault: a judge's server wants a client certificate, and gets none or one of another authority
/// Sees: `error` after `retries`: a connection error that says so; nothing is sent
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_to_know_its_clients() {
    let config = || JudgeConfig { tls: true, of_clients: true, ..Default::default() };
    let (judge, other) = (mock(config()).await, mock(config()).await);
    let pem = |of: &MockJudge| of.client().map(|(chain, key)| (chain.as_bytes().to_vec(), key.as_bytes().to_vec()));
    for (client, known) in [(pem(&judge), true), (None, false), (pem(&other), false)] {
        let endpoint = endpoint(&judge, PATH).with_tls(true, client).expect("certificates of ours");
        let (status, reason) = asked(endpoint).await;
        assert_eq!(status == Status::Ok, known, "{reason}");
        assert!(known || reason.contains("ConnectionError") && reason.contains("localhost"), "{reason}");
    }
    assert_eq!(judge.seen().requests.load(Ordering::Relaxed), 1);
}

/// Fault: a judge's certificate is good for the system, and only one authority is to be trusted
/// Sees: `error` after `retries`: can't connect; nothing is sent
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_this_authority_is_trusted() {
    let (judge, other) = (
        mock(JudgeConfig { tls: true, ..Default::default() }).await,
        mock(JudgeConfig { tls: true, ..Default::default() }).await,
    );
    for (trusted, known) in [(&judge, true), (&other, false)] {
        let pem = trusted.authority().map(|pem| pem.as_bytes().to_vec());
        let endpoint = Endpoint::new(&judge.url(PATH), Vec::new(), None, false, pem);
        let endpoint = endpoint.and_then(|endpoint| endpoint.with_tls(true, None)).expect("an authority of ours");
        let (status, reason) = asked(endpoint).await;
        assert_eq!(status == Status::Ok, known, "{reason}");
        assert!(known || reason.contains("can't connect to localhost"), "{reason}");
    }
    assert_eq!(judge.seen().requests.load(Ordering::Relaxed), 1);
}

/// A batch whose budget is spent, or that is cancelled, leaves no request behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_nobody_waits_for_are_dropped() {
    let (judge, rig) = judged(JudgeConfig { latency: Latency::Fixed(100 * SECOND), ..Default::default() }, 3).await;
    let batch = rig.submit(&texts(200), Some(SECOND / 2));
    let cancelled = rig.submit(&texts(10), None);
    let found = outcomes(&done(batch).await);
    assert!(
        found.iter().all(|(status, _, reason)| *status == Status::Timeout && reason == "batch timeout"),
        "{:?}",
        found[0]
    );
    rig.scheduler.cancel(&cancelled, "enough");
    let mut patience = 1200;
    while judge.seen().in_flight.load(Ordering::Relaxed) > 0 || !rig.lane.in_flight(0).is_empty() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        patience -= 1;
        assert!(patience > 0, "{} requests are left", judge.seen().in_flight.load(Ordering::Relaxed));
    }
    rig.scheduler.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_ends_what_is_on_its_way() {
    let (_judge, rig) = judged(JudgeConfig { latency: Latency::Fixed(100 * SECOND), ..Default::default() }, 3).await;
    let batch = rig.submit(&texts(100), None);
    while rig.lane.in_flight(0).len() < 64 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::timeout(60 * SECOND, rig.scheduler.close()).await.expect("closing ends");
    assert!(outcomes(&batch).iter().all(|(status, ..)| *status == Status::Cancelled));
    assert!(rig.lane.in_flight(0).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reward_services_take_many_samples_at_once() {
    let judge = mock(JudgeConfig::default()).await;
    let rig = Rig::gathering(rewards(endpoint(&judge, "/rewards")), policy(20 * SECOND, 0, 4), Some(16));
    let batch = done(rig.submit(&texts(100), None)).await;
    for (index, (status, value, reason)) in outcomes(&batch).into_iter().enumerate() {
        assert_eq!((status, value), (Status::Ok, index as f64), "{reason}");
    }
    assert_eq!(judge.seen().requests.load(Ordering::Relaxed), 7);
    let odd = rig.score(&["[[score null]]", "[[score high]]", "[[score 3]]"]).await;
    assert_eq!((odd[0].0, odd[1].0), (Status::Abstained, Status::Error));
    assert_eq!((odd[2].0, odd[2].1), (Status::Ok, 3.0));
    assert!(odd[1].2.contains("127.0.0.1") && odd[1].2.contains("\"high\", which is not a number"), "{odd:?}");
    rig.scheduler.close().await;
}

/// Samples of batches that wait at the same time are in the same requests, each with its own text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_of_several_batches_go_into_one_request() {
    const BATCHES: usize = 12;
    let judge = mock(JudgeConfig { latency: Latency::Fixed(SECOND / 4), ..Default::default() }).await;
    let rig = Rig::gathering(rewards(endpoint(&judge, "/rewards")), policy(20 * SECOND, 0, 1), Some(16));
    let all = texts(2 * BATCHES);
    let first = rig.submit(&texts(1), None);
    let batches: Vec<_> = all.chunks(2).map(|texts| rig.submit(texts, None)).collect();
    done(first).await;
    for (at, batch) in batches.into_iter().enumerate() {
        for (index, (status, value, reason)) in outcomes(&done(batch).await).into_iter().enumerate() {
            assert_eq!((status, value), (Status::Ok, (2 * at + index) as f64), "{reason}");
        }
    }
    // Three, unless the machine stalled while the first was on its way.
    assert!(judge.seen().requests.load(Ordering::Relaxed) < BATCHES as u64);
    rig.scheduler.close().await;
}

/// A request that fails for one sample's sake is made again in halves, until that is alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_sample_fails_alone() {
    for fault in ["[[status 400]]", "[[status 500]]", "[[bad-json]]", "[[reset]]"] {
        let judge = mock(JudgeConfig::default()).await;
        let rig = Rig::gathering(rewards(endpoint(&judge, "/rewards")), policy(20 * SECOND, 0, 4), Some(16));
        let mut all = texts(16);
        all[5] = fault.to_owned();
        let found = outcomes(&done(rig.submit(&all, None)).await);
        // says nothing about a sample: all are retried or fail together
        let together = fault == "[[reset]]";
        for (index, (status, value, reason)) in found.iter().enumerate() {
            let failed = index == 5 || together;
            assert_eq!(*status, if failed { Status::Error } else { Status::Ok }, "{fault} {index}: {reason}");
            assert!(failed || *value == index as f64);
        }
        let requests = judge.seen().requests.load(Ordering::Relaxed);
        assert_eq!(requests, if together { 1 } else { 9 }, "{fault}: 16, 8 and 8, 4 and 4, 2 and 2, 1 and 1");
        rig.scheduler.close().await;
    }
}

/// Thousands of slow calls at a time, over connections that are made once. Coarse bounds; the bench
/// has the figures.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_at_a_time_over_the_same_connections() {
    const CALLS: usize = 512;
    let judge = mock(JudgeConfig { tls: true, latency: Latency::Fixed(SECOND / 2), ..Default::default() }).await;
    let rig = Rig::new(chat(endpoint(&judge, PATH)), policy(60 * SECOND, 0, CALLS));
    assert_eq!(rig.lane.connections(), CALLS);
    for round in 0..2 {
        let start = Instant::now();
        let batch = done(rig.submit(&texts(CALLS), None)).await;
        assert!(outcomes(&batch).iter().all(|(status, ..)| *status == Status::Ok));
        // One after the other they take minutes.
        assert!(start.elapsed() < 100 * SECOND, "round {round}: {:?}", start.elapsed());
    }
    let twice = done(rig.submit(&texts(2 * CALLS), None)).await;
    assert!(outcomes(&twice).iter().all(|(status, ..)| *status == Status::Ok));
    let seen = judge.seen();
    let handshakes = seen.handshakes.load(Ordering::Relaxed);
    assert!(handshakes <= CALLS as u64, "{handshakes} handshakes for {} calls", 4 * CALLS);
    rig.scheduler.close().await;
}
