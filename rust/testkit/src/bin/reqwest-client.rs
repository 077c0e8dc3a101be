//! Judge calls over reqwest, whose pool is hyper-util's, for `benches/python/bench_judge.py`:
//! `reqwest-client URL CA_FILE CALLS AT_ONCE`. Each line of its standard input is a round of
//! `CALLS` calls, `AT_ONCE` in flight; it answers with a line of JSON: CPU seconds, the 99th
//! percentile of a call, all scores.

use std::error::Error;
use std::io::BufRead;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Client;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

type Failed = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, ca_file, calls, at_once] = &arguments[..] else {
        return Err("usage: reqwest-client URL CA_FILE CALLS AT_ONCE".into());
    };
    let (calls, at_once, client): (usize, usize, Client) = (calls.parse()?, at_once.parse()?, client(ca_file)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    for line in std::io::stdin().lock().lines() {
        line?;
        let cpu_before = cpu_time()?;
        let (scores, mut took) = runtime.block_on(round(&client, url, calls, at_once))?;
        let cpu_s = (cpu_time()? - cpu_before).as_secs_f64();
        took.sort_unstable();
        let p99_s = took.get(calls * 99 / 100).copied().unwrap_or_default().as_secs_f64();
        println!("{}", json!({ "cpu_s": cpu_s, "p99_s": p99_s, "scores": scores }));
    }
    Ok(())
}

fn client(ca_file: &str) -> Result<Client, Failed> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca_file)? {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Client::builder().use_preconfigured_tls(config).no_proxy().build()?)
}

async fn round(client: &Client, url: &str, calls: usize, at_once: usize) -> Result<(Vec<f64>, Vec<Duration>), Failed> {
    let (mut tasks, permits) = (JoinSet::new(), Arc::new(Semaphore::new(at_once)));
    for index in 0..calls {
        let text = format!("Rate this from 0 to 10: [[score {}]] {}", index % 11, "x".repeat(1000));
        let body = json!({ "model": "mock", "messages": [{ "role": "user", "content": text }] });
        let request = client.post(url).json(&body);
        let permits = permits.clone();
        tasks.spawn(async move {
            let _permit = permits.acquire().await?;
            let start = Instant::now();
            let answer: Value = request.send().await?.error_for_status()?.json().await?;
            let text = answer.pointer("/choices/0/message/content").and_then(Value::as_str).unwrap_or_default();
            let score: f64 = text.trim_start_matches("Score: ").parse()?;
            Ok::<_, Failed>((index, score, start.elapsed()))
        });
    }
    let (mut scores, mut took) = (vec![0.0; calls], Vec::with_capacity(calls));
    while let Some(done) = tasks.join_next().await {
        let (index, score, time) = done??;
        scores[index] = score;
        took.push(time);
    }
    Ok((scores, took))
}

/// The CPU time of this process so far.
fn cpu_time() -> Result<Duration, Failed> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(Duration::new(u64::try_from(now.tv_sec)?, u32::try_from(now.tv_nsec)?))
}
