//! The mock judge as a program: `mock-judge [--tls] [--http2] [--port N] [--latency fixed:1]
//! [--window 100/3 [--no-hint]] [--failing 0.1] [--ca FILE]`.
//!
//! It prints its address, and with `--ca` writes the certificate to trust; it ends at the end of
//! its standard input. `GET /seen` returns its counts.

use std::error::Error;
use std::time::Duration;

use guerdon_testkit::judge::{JudgeConfig, Latency, MockJudge, Window};
use tokio::io::AsyncReadExt;

fn main() -> Result<(), Box<dyn Error>> {
    let mut config = JudgeConfig::default();
    let mut ca = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--tls" => config.tls = true,
            "--http2" => config.http2 = true,
            "--no-hint" => config.without_hint = true,
            "--port" => config.port = value()?.parse()?,
            "--latency" => config.latency = Latency::parse(&value()?).ok_or("--latency wants fixed:1 or the like")?,
            "--failing" => config.failing = value()?.parse()?,
            "--ca" => ca = Some(value()?),
            "--window" => {
                let value = value()?;
                let (requests, seconds) = value.split_once('/').ok_or("--window wants 100/3")?;
                let length = Duration::try_from_secs_f64(seconds.parse()?)?;
                config.window = Some(Window { requests: requests.parse()?, length });
            }
            other => return Err(format!("{other} is no option").into()),
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async move {
        let judge = MockJudge::start(config).await?;
        if let (Some(file), Some(pem)) = (ca, judge.authority()) {
            std::fs::write(file, pem)?;
        }
        println!("{}", judge.url(""));
        let mut end = Vec::new();
        tokio::io::stdin().read_to_end(&mut end).await?;
        Ok::<(), Box<dyn Error>>(())
    })?;
    Ok(())
}
