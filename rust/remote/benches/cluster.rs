//! A cluster of 64 nodes with 64 cores: how long batches take beside what the cores could do, and
//! what the driver itself costs, which says where it becomes the bound.
//!
//! The first part runs on a clock that only moves when all wait; the second on the real one, with
//! agents whose calls cost nothing.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and ends")]

#[path = "../tests/remote/rig.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod rig;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use guerdon_core::batch::BatchSpec;
use guerdon_core::clock::Clock;
use guerdon_core::function::Shape;
use guerdon_core::lane::Lane;
use guerdon_core::outcome::Cell;
use guerdon_core::scheduler::Scheduler;
use guerdon_core::snapshots::AgentStats;
use guerdon_remote::{Agent, AgentConfig, Link, Pace, RemoteConfig, RemoteLane};
use guerdon_testkit::{Act, Ask, NumberedPayload, done, function, instant_lane, paused};
use rig::{DIGEST, NodeSpec, Rig};

const NODES: usize = 64;
const CORES: usize = 64;

/// Milliseconds with a heavy tail, `scale` being the least.
fn cost(sample: usize, scale: f64) -> Duration {
    let mut draws = fastrand::Rng::with_seed(sample as u64);
    Duration::from_millis((scale / draws.f64().max(1e-4).powf(0.6)).min(3000.0) as u64)
}

/// How long it takes where each core takes the next call at once.
fn one_queue(samples: usize, scale: f64) -> Duration {
    let mut free: BinaryHeap<Reverse<Duration>> = vec![Reverse(Duration::ZERO); NODES * CORES].into();
    for sample in 0..samples {
        let at = free.pop().map_or(Duration::ZERO, |core| core.0);
        free.push(Reverse(at + cost(sample, scale)));
    }
    free.into_iter().map(|core| core.0).max().unwrap_or_default()
}

fn simulate(samples: usize, scale: f64) {
    let script = move |ask: &Ask| Act::Return { after: cost(ask.first, scale), cells: vec![Cell::Value(1.0)] };
    let (took, bytes, messages) = paused(async move {
        let rig = Rig::new(vec![function("f", Shape::Sample)], script);
        for node in 0..NODES {
            rig.add(&format!("n{node}"), NodeSpec { delay: Duration::from_millis(1), ..NodeSpec::new(CORES) });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let start = tokio::time::Instant::now();
        let payload = Box::new(NumberedPayload { batch: 1, bytes: 2048 });
        let batch = rig.scheduler.submit(BatchSpec::whole(samples, 1, payload)).unwrap();
        assert!(done(&batch).await);
        let took = start.elapsed().as_secs_f64();
        let counts = (rig.bytes.load(Ordering::Relaxed), rig.messages.load(Ordering::Relaxed));
        rig.close().await;
        (took, counts.0, counts.1)
    });
    let costs = (0..samples).map(|sample| cost(sample, scale).as_secs_f64());
    let (work, longest) = costs.fold((0.0, 0.0_f64), |(sum, most), one| (sum + one, most.max(one)));
    let bound = (work / (NODES * CORES) as f64).max(longest);
    println!(
        "{samples} calls of {:.0} ms on average, the longest {longest:.1} s: {took:.2} s, {:.3} x the bound, {:.3} x \
         what one queue takes; {} bytes and {:.4} messages a call",
        work / samples as f64 * 1e3,
        took / bound,
        took / one_queue(samples, scale).as_secs_f64(),
        bytes / samples as u64,
        messages as f64 / samples as f64,
    );
}

/// CPU time of this thread.
fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// What the driver's thread takes for a call, its agents being on another.
fn driver(samples: usize, bytes: usize) {
    let theirs = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let ours = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let functions = vec![function("f", Shape::Sample)];
    let local = Box::new(|| Arc::new(instant_lane(64)) as Arc<dyn Lane>);
    let spent = ours.block_on(async {
        let (handle, clock) = (tokio::runtime::Handle::current(), Clock::start());
        let config = RemoteConfig::new(DIGEST, 1, local);
        let lane = RemoteLane::new(handle.clone(), clock, &functions, config);
        let scheduler = Scheduler::start(&handle, clock, functions.clone(), vec![lane.clone()]);
        let agents: Vec<Agent> = (0..NODES)
            .map(|node| {
                let lanes: Vec<Arc<dyn Lane>> = vec![Arc::new(instant_lane(64))];
                let config = AgentConfig { digest: DIGEST, slots: CORES, stats: Box::new(AgentStats::default) };
                let agent = Agent::start(theirs.handle(), Clock::start(), functions.clone(), lanes, config);
                let (here, there) = (lane.add_node(&format!("n{node}")).unwrap(), agent.connect("driver"));
                let pump = |from: Arc<Link>, to: Arc<Link>| async move {
                    while let Some(message) = from.next(Pace::AT_ONCE).await {
                        to.deliver(message);
                    }
                };
                theirs.spawn(pump(here.clone(), there.clone()));
                theirs.spawn(pump(there, here));
                agent
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let mut best = Duration::MAX;
        for number in 0..3 {
            let payload = Box::new(NumberedPayload { batch: number, bytes });
            let (before, start) = (cpu(), Instant::now());
            let batch = scheduler.submit(BatchSpec::whole(samples, 1, payload)).unwrap();
            while !batch.is_done() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            best = best.min(cpu() - before);
            println!("  {samples} calls of {bytes} bytes in {:.2} s", start.elapsed().as_secs_f64());
        }
        scheduler.close().await;
        drop(agents);
        best
    });
    theirs.shutdown_background();
    let each = spent.as_secs_f64() / samples as f64;
    println!(
        "the driver takes {:.2} us of CPU a call of {bytes} bytes: with {} cores it is the bound below {:.1} ms a call",
        each * 1e6,
        NODES * CORES,
        each * (NODES * CORES) as f64 * 1e3,
    );
}

fn main() {
    if std::env::args().any(|arg| arg == "--test") {
        simulate(8192, 20.0);
        driver(20_000, 64);
        return;
    }
    simulate(65_536, 20.0);
    simulate(262_144, 20.0);
    driver(200_000, 64);
    driver(200_000, 2048);
}
