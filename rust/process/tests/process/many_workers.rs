//! More workers than one loader forks for: several loaders, storms of crashes, loaders that die or
//! hang.
#![expect(clippy::unwrap_used, reason = "a process that can't be killed fails its test")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use guerdon_core::outcome::Status;

use crate::rig::{Rig, reason, spec, statuses, values};

const WORKERS: usize = 40;

fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The processes that forked the workers.
fn loaders(rig: &Rig) -> BTreeSet<i32> {
    rig.lane.worker_pids().into_iter().filter_map(parent_of).collect()
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// A lane whose workers have all started.
fn started() -> Rig {
    let rig = Rig::with(vec![spec("work").with(|one| one.policy.timeout = Duration::from_secs(30))], WORKERS, |_| {});
    expect_all(&rig);
    rig
}

/// Scores until all workers are there.
fn expect_all(rig: &Rig) {
    let texts: Vec<String> = (0..400).map(|number| format!("wait 0.02 {number}")).collect();
    let start = Instant::now();
    loop {
        let batch = rig.score(&texts);
        assert_eq!(values(&batch, 0), (0..400).map(|number| number as f32).collect::<Vec<_>>());
        if rig.lane.worker_pids().len() >= WORKERS {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "{:?}", rig.lane.stats());
    }
}

/// Fault: all workers crash at the same time, with more workers than one loader forks for
/// Sees: `crashed` with the exit status for each of those calls; all workers are back
#[test]
fn a_storm_of_crashes_loses_no_reason() {
    let rig = started();
    let batch = rig.score(&vec!["exit 3"; 2 * WORKERS]);
    assert_eq!(statuses(&batch, 0), [Status::Crashed; 2 * WORKERS]);
    for sample in 0..2 * WORKERS {
        assert_eq!(reason(&batch, sample, 0), "the worker process exited with status 3");
    }
    expect_all(&rig);
    assert!(loaders(&rig).len() > 1, "one loader forks them all");
    rig.close();
}

/// Fault: one of several loaders is killed
/// Sees: a second attempt for the calls in hand of its workers; others take its place
#[test]
fn a_loader_that_dies_takes_its_workers_and_no_others() {
    let rig = started();
    let all = loaders(&rig);
    let clone = *all.iter().find(|pid| parent_of(**pid).is_some_and(|parent| all.contains(&parent))).unwrap();
    let others: BTreeSet<i32> =
        rig.lane.worker_pids().into_iter().filter(|pid| parent_of(*pid) != Some(clone)).collect();
    kill(clone);
    expect_all(&rig);
    let now: BTreeSet<i32> = rig.lane.worker_pids().into_iter().collect();
    assert!(others.is_subset(&now), "workers of another loader ended");
    // The one that forked the others takes them all along.
    let first = *all.iter().find(|pid| parent_of(**pid).is_none_or(|parent| !all.contains(&parent))).unwrap();
    kill(first);
    expect_all(&rig);
    rig.close();
}

/// Fault: three of 200 calls kill the process that forked their worker, on 40 workers of several
/// loaders
/// Sees: they are `crashed`; every other call has its value
#[test]
fn calls_that_kill_their_loader_cost_no_other_its_value() {
    let rig = started();
    let guilty = [3, 20, 111];
    let text = |number| if guilty.contains(&number) { "parent".to_owned() } else { format!("wait 0.05 {number}") };
    let batch = rig.score(&(0..200).map(text).collect::<Vec<_>>());
    for sample in 0..200 {
        let (value, status) = batch.shown(sample, 0);
        let why = reason(&batch, sample, 0);
        if guilty.contains(&sample) {
            assert_eq!(status, Status::Crashed, "{sample}: {why}");
            assert!(why.contains("with its zygote, which had no other worker"), "{sample}: {why}");
        } else {
            assert_eq!((value, status), (sample as f32, Status::Ok), "{sample}: {why}");
        }
    }
    expect_all(&rig);
    rig.close();
}

/// Workers load the function by themselves, and one crashes while another loader is tried.
#[test]
fn a_loader_that_hangs_delays_neither_reaps_nor_forks() {
    let rig = Rig::new(vec![spec("work").of("fatal_to_loaders")]);
    let texts = vec!["give 1"; 20];
    assert_eq!(statuses(&rig.score(&texts), 0), [Status::Ok; 20]);
    std::thread::sleep(Duration::from_secs(11)); // the time after which another loader is tried
    for _ in 0..2 {
        let start = Instant::now();
        let mut texts = texts.clone();
        texts[3] = "exit 3";
        let batch = rig.score(&texts);
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
        assert_eq!(reason(&batch, 3, 0), "the worker process exited with status 3");
        assert_eq!(statuses(&batch, 0).iter().filter(|status| **status == Status::Ok).count(), 19);
    }
    rig.close();
}
