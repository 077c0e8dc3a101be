//! Lines that workers print, towards drivers that read them and such that don't.

use std::sync::Arc;
use std::time::Duration;

use guerdon_core::clock::Clock;
use guerdon_core::function::Shape;
use guerdon_core::lane::Lane;
use guerdon_core::snapshots::AgentStats;
use guerdon_remote::{Agent, AgentConfig, Link, OutgoingBytes, Pace};
use guerdon_testkit::{Act, Ask, FakeLane, Room, function};
use tokio::runtime::Handle;

use crate::rig::DIGEST;

fn agent() -> Agent {
    let lane: Arc<dyn Lane> = Arc::new(FakeLane::new(Room::default(), |_: &Ask| -> Act { unreachable!() }));
    let config = AgentConfig { digest: DIGEST, slots: 1, stats: Box::new(AgentStats::default) };
    Agent::start(&Handle::current(), Clock::start(), vec![function("f", Shape::Sample)], vec![lane], config)
}

fn waiting(link: &Link) -> Vec<u8> {
    let next = || match link.take(Duration::ZERO, Pace::AT_ONCE) {
        OutgoingBytes::Message(message) => Some(message),
        _ => None,
    };
    std::iter::from_fn(next).flatten().collect()
}

fn lines_in(bytes: &[u8]) -> usize {
    bytes.windows(3).filter(|window| window == b"xx\n").count()
}

fn line() -> Vec<u8> {
    let mut line = vec![b'x'; 1023];
    line.push(b'\n');
    line
}

/// Fault: a driver of an agent does not read what workers print
/// Sees: about 1 MB is kept for it; the number of dropped lines is printed once it reads
#[tokio::test(start_paused = true)]
async fn lines_for_a_driver_that_does_not_read_are_bounded_and_counted() {
    let agent = agent();
    let link = agent.connect("stopped");
    (0..20_000).for_each(|_| agent.print(&line()));
    let kept = waiting(&link);
    assert!((1 << 20..(1 << 20) + 4096).contains(&kept.len()), "{}", kept.len());
    let dropped = 20_000 - lines_in(&kept);
    agent.print(b"after\n");
    let text = String::from_utf8_lossy(&waiting(&link)).into_owned();
    assert!(text.contains(&format!("[guerdon] {dropped} lines of output were dropped")), "{text}");
    assert!(text.contains("after"), "{text}");
    agent.print(b"again\n");
    assert!(!String::from_utf8_lossy(&waiting(&link)).contains("dropped"), "it is reported once");
    agent.close().await;
}

#[tokio::test(start_paused = true)]
async fn lines_go_to_the_next_driver_where_one_does_not_read() {
    let agent = agent();
    let (stopped, reading) = (agent.connect("stopped"), agent.connect("reading"));
    let mut read = Vec::new();
    for _ in 0..5000 {
        agent.print(&line());
        read.extend(waiting(&reading));
    }
    let text = waiting(&stopped);
    assert_eq!(lines_in(&text) + lines_in(&read), 5000);
    assert!(!read.windows(7).any(|window| window == b"dropped"));
    agent.close().await;
}
