//! How long a batch takes beside what its nodes could do at best.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use guerdon_core::function::Shape;
use guerdon_core::outcome::Cell;
use guerdon_testkit::{Act, Ask, done, function, paused};

use crate::rig::{NodeSpec, Rig};

/// Costs with a heavy tail: most are a few milliseconds, one in a hundred is fifty.
fn cost(sample: usize) -> Duration {
    let mut draws = fastrand::Rng::with_seed(sample as u64);
    let seconds = 0.002 / draws.f64().max(0.0004).powf(0.7);
    // tokio's timers count milliseconds.
    Duration::from_millis((seconds.min(0.2) * 1e3) as u64)
}

fn makespan(nodes: &[(usize, Duration)], samples: usize) -> (f64, f64) {
    let spec = |(workers, delay): &(usize, Duration)| NodeSpec { delay: *delay, ..NodeSpec::new(*workers) };
    let (took, bound, _) = run(nodes.iter().map(spec).collect(), samples, cost);
    (took, bound)
}

/// How long it takes where each worker has the next call at once, in their order.
fn one_queue(workers: usize, samples: usize, cost: impl Fn(usize) -> Duration) -> f64 {
    let mut free: BinaryHeap<_> = vec![Reverse(Duration::ZERO); workers].into();
    for sample in 0..samples {
        let at = free.pop().map_or(Duration::ZERO, |worker| worker.0);
        free.push(Reverse(at + cost(sample)));
    }
    free.into_iter().map(|worker| worker.0.as_secs_f64()).fold(0.0, f64::max)
}

/// How long it takes, the least that it could, and how many messages there are.
fn run(
    nodes: Vec<NodeSpec>,
    samples: usize,
    cost: impl Fn(usize) -> Duration + Copy + Send + Sync + 'static,
) -> (f64, f64, u64) {
    paused(async move {
        let script = move |ask: &Ask| Act::Return { after: cost(ask.first), cells: vec![Cell::Value(1.0)] };
        let rig = Rig::new(vec![function("f", Shape::Sample)], script);
        for (number, spec) in nodes.iter().enumerate() {
            rig.add(&format!("n{number}"), *spec);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let start = tokio::time::Instant::now();
        let batch = rig.submit(1, samples, 1);
        assert!(done(&batch).await);
        let took = start.elapsed().as_secs_f64();
        let work: f64 = (0..samples).map(|sample| cost(sample).as_secs_f64()).sum();
        let workers: usize = nodes.iter().map(|spec| spec.workers).sum();
        let messages = rig.messages.load(Ordering::Relaxed);
        rig.close().await;
        (took, work / workers as f64, messages)
    })
}

#[test]
fn sixty_four_nodes_are_no_worse_than_one_queue() {
    // A queue for all workers, longest calls not first: no worker idles while work waits.
    let (nodes, samples) = (vec![(64, Duration::from_millis(1)); 64], 6_000);
    let (took, bound) = makespan(&nodes, samples);
    let longest = (0..samples).map(cost).max().unwrap_or_default().as_secs_f64();
    let both_ways = 0.01;
    assert!(took <= bound + longest + both_ways, "{took:.3} s, {bound:.3} s of work and {longest:.3} s");
}

#[test]
fn unequal_nodes_end_together() {
    let ms = Duration::from_millis(1);
    for nodes in [vec![(2, ms), (8, ms)], vec![(1, ms), (4, 5 * ms), (16, 2 * ms)]] {
        let (took, bound) = makespan(&nodes, 12_000);
        assert!(took <= 1.05 * bound, "{nodes:?}: {took:.3} s, and {bound:.3} s at best");
    }
}

#[test]
fn workers_of_ray_nodes_do_not_wait_for_calls() {
    let five = |_| Duration::from_millis(5);
    for delay in [2, 6] {
        let node = NodeSpec { delay: Duration::from_millis(delay), ..NodeSpec::ray(2) };
        let (took, bound, messages) = run(vec![node; 3], 1200, five);
        // What has ended and what comes in its place go together.
        assert!(took <= 1.06 * bound && messages <= 700, "{delay} ms: {took:.3} of {bound:.3} s, {messages} messages");
    }
}

#[test]
fn unequal_ray_nodes_end_together() {
    let nodes = [2, 2, 4].map(NodeSpec::ray).to_vec();
    let (took, bound, _) = run(nodes, 3_000, cost);
    assert!(took <= 1.05 * bound, "{took:.3} s, and {bound:.3} s at best");
}

#[test]
fn unequal_ray_nodes_are_as_good_as_one_queue() {
    // Short batches with a heavy tail: how much the last long calls cost is up to their order, so
    // they are held against a queue that knows no way.
    let mut more = 0.0;
    for batch in 0..12 {
        let cost = move |sample| {
            let mut draws = fastrand::Rng::with_seed(batch << 32 | sample as u64);
            let seconds = 0.002 + 0.004 * draws.f64().max(1e-6).powf(-1.0 / 1.5);
            Duration::from_millis((seconds.min(1.0) * 1e3).round() as u64)
        };
        let (took, ..) = run([2, 2, 4].map(NodeSpec::ray).to_vec(), 600, cost);
        more += took / one_queue(8, 600, cost) - 1.0;
    }
    let more = more / 12.0;
    assert!(more <= 0.015, "{:.2} % more than one queue", more * 1e2);
}

#[test]
fn a_node_behind_a_slow_link_has_enough_to_do() {
    let far = NodeSpec { delay: Duration::from_millis(50), ..NodeSpec::ray(4) };
    let (took, bound, _) = run(vec![far, NodeSpec::ray(4)], 3_000, |_| Duration::from_millis(5));
    // It waits for its first calls and for a round trip at the end.
    assert!(took <= 1.25 * bound, "{took:.3} s, and {bound:.3} s at best");
}
