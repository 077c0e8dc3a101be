//! The process lane with real processes: the faults that `tests/contract` and `tests/stress` do not
//! have.
//!
//! Needs a Python 3.11 or later: `GUERDON_TEST_PYTHON`, or `python3` on the path.

mod many_workers;
mod rig;

use std::time::{Duration, Instant};

use guerdon_core::outcome::{Status, Traceback};

use rig::{Rig, reason, spec, statuses, values, wait};

fn gives(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("give {number}")).collect()
}

#[test]
fn a_hang_is_reported_where_it_was_last_seen_and_costs_its_timeout_only() {
    // Time to answer in, also on a busy machine.
    let rig = Rig::new(vec![spec("work").with(|function| function.policy.grace = Duration::from_secs(4))]);
    rig.warm();
    let mut texts = gives(200);
    texts[7] = "hang".to_owned();
    let start = Instant::now();
    let batch = rig.score(&texts);
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(40), "{took:?}");
    assert_eq!(statuses(&batch, 0).iter().filter(|status| **status == Status::Ok).count(), 199);
    let note = batch.note_of(7, 0).unwrap();
    assert!(note.traceback.is_some_and(|stack| stack.text().contains("in hang")), "{}", note.reason);
    assert_eq!(rig.lane.stats().kills, 0, "the exception was enough");
    rig.close();
}

#[test]
fn a_killed_call_tells_where_it_was_last_seen_also_in_c_that_holds_the_gil() {
    // Time to answer in, also on a busy machine.
    let rig = Rig::new(vec![spec("work").with(|function| function.policy.grace = Duration::from_secs(4))]);
    rig.warm();
    let batch = rig.score(&["gil", "deaf", "hang"]);
    for (sample, name) in [(0, "hold_gil"), (1, "hang_deaf"), (2, "hang")] {
        let note = batch.note_of(sample, 0).unwrap();
        let stack = note.traceback.as_ref().map(Traceback::text).unwrap_or_default();
        assert_eq!(note.reason, "no answer within the timeout of 2 s");
        assert!(matches!(note.traceback, Some(Traceback::LastSeen(_))), "{note:?}");
        assert!(stack.contains("functions.py\", line ") && stack.contains(&format!(", in {name}\n")), "{stack}");
        assert!(stack.contains(", in work\n") && !stack.contains("worker.py"), "{stack}");
    }
    assert_eq!(rig.lane.stats().kills, 2);
    rig.close();
}

#[test]
fn a_worker_that_can_not_be_asked_is_killed_as_before() {
    let rig = Rig::new(vec![spec("work")]);
    rig.warm();
    let batch = rig.score(&["unstopped", "closed", "taken", "stop", "give 5"]);
    for sample in 0..4 {
        let note = batch.note_of(sample, 0).unwrap();
        assert_eq!((batch.shown(sample, 0).1, note.traceback), (Status::Timeout, None), "{sample}: {}", note.reason);
        assert_eq!(note.reason, "no answer within the timeout of 2 s");
    }
    assert_eq!(batch.shown(4, 0), (5.0, Status::Ok));
    rig.close();
}

#[test]
fn the_call_in_hand_of_a_dead_worker_gets_one_more_try_alone() {
    let rig = Rig::new(vec![spec("work")]);
    rig.warm();
    let path = std::env::temp_dir().join(format!("guerdon-once-{}", std::process::id()));
    let mut texts = gives(100);
    texts[40] = format!("once {}", path.display());
    let batch = rig.score(&texts);
    std::fs::remove_file(path).unwrap();
    assert_eq!(batch.shown(40, 0), (3.0, Status::Ok));
    assert_eq!(batch.cell(40, 0).unwrap().attempts, 2);
    for sample in (0..100).filter(|sample| *sample != 40) {
        assert_eq!(batch.cell(sample, 0).unwrap().attempts, 1);
    }
    rig.close();
}

#[test]
fn a_killed_worker_is_replaced_and_so_is_a_killed_zygote() {
    let rig = Rig::new(vec![spec("work").with(|function| function.policy.timeout = Duration::from_secs(5))]);
    rig.warm();
    for _ in 0..3 {
        let batch = rig.submit(&(0..20).map(|number| format!("wait 0.02 {number}")).collect::<Vec<_>>(), 1);
        std::thread::sleep(Duration::from_millis(50));
        let pid = rustix::process::Pid::from_raw(rig.lane.worker_pids()[0]).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        wait(&batch);
        assert_eq!(values(&batch, 0), (0..20).map(|number| number as f32).collect::<Vec<_>>());
    }
    let batch = rig.score(&["zygote", "give 1", "give 2"]);
    assert_eq!(batch.shown(1, 0).0, 1.0);
    let batch = rig.score(&gives(50));
    assert_eq!(values(&batch, 0), (0..50).map(|number| number as f32).collect::<Vec<_>>());
    rig.close();
}

#[test]
fn functions_that_start_threads_when_loaded_are_not_forked() {
    let rig = Rig::new(vec![spec("work").of("threaded")]);
    let mut texts = gives(40);
    texts[3] = "exit 1".to_owned();
    texts[30] = "hang".to_owned();
    let batch = rig.score(&texts);
    let kept = |sample: &usize| *sample != 3 && *sample != 30;
    assert!((0..40).filter(kept).all(|sample| batch.shown(sample, 0) == (sample as f32, Status::Ok)));
    assert_eq!(statuses(&batch, 0)[3], Status::Crashed);
    assert_eq!(statuses(&batch, 0)[30], Status::Timeout);
    rig.close();
}

#[test]
fn a_function_that_ends_whoever_loads_it_fails_alone() {
    let rig = Rig::new(vec![spec("work"), spec("work").of("deadly")]);
    let batch = rig.score(&gives(20));
    assert_eq!(values(&batch, 0), (0..20).map(|number| number as f32).collect::<Vec<_>>());
    assert_eq!(statuses(&batch, 1), [Status::Error; 20]);
    assert_eq!(reason(&batch, 7, 1), "the worker process exited with status 5 while it loaded the function");
    rig.close();
}

#[test]
fn a_crash_in_c_names_the_python_location() {
    let rig = Rig::new(vec![spec("work")]);
    let batch = rig.score(&["null"]);
    let stack = batch.note_of(0, 0).and_then(|note| note.traceback);
    let stack = stack.as_ref().map(Traceback::text).unwrap_or_default();
    assert!(stack.starts_with("Fatal Python error: Segmentation fault") && stack.contains("in null"), "{stack}");
    let printed = rig.printed.clone();
    rig.close();
    let printed = printed.lock();
    assert!(printed.contains(" in null") && !printed.contains("_worker/"), "{printed}");
}

#[test]
fn a_stateful_function_is_set_up_once_and_closed_once() {
    let spec = spec("well").with(|function| function.finish = true);
    let rig = Rig::with(vec![spec], 1, |_| {});
    let batch = rig.submit(&["give 1", "none", "fail x", "give 4"], 4);
    wait(&batch);
    // 1 for the one setup; then finish_group: times a hundred plus the size of the group.
    assert_eq!(values(&batch, 0)[0], 204.0);
    assert_eq!(statuses(&batch, 0), [Status::Ok, Status::Error, Status::Error, Status::Ok]);
    rig.score(&["give 1"]);
    let printed = rig.printed.clone();
    rig.close();
    let printed = printed.lock().clone();
    assert_eq!(printed.matches("closed 1").count(), 1, "{printed}");
    assert!(printed.starts_with("[guerdon well "), "{printed}");
}

#[test]
fn a_setup_that_fails_hangs_or_dies_fails_its_function_only() {
    let quick = |spec: rig::Spec| spec.with(|function| function.policy.setup_timeout = Duration::from_millis(500));
    let rig = Rig::new(vec![spec("work"), spec("fails"), quick(spec("hangs")), spec("dies"), spec("missing")]);
    let batch = rig.score(&gives(6));
    assert_eq!(values(&batch, 0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    for (function, why) in [
        (1, "setup() failed: RuntimeError: no tokenizer here"),
        (2, "setup() did not end within the setup_timeout of 0.5 s"),
        (3, "the worker process exited with status 9 in setup()"),
        (4, "could not be loaded in a worker: AttributeError"),
    ] {
        assert!(statuses(&batch, function).iter().all(|status| *status == Status::Error));
        assert!(reason(&batch, 5, function).starts_with(why), "{}", reason(&batch, 5, function));
    }
    rig.close();
}

#[test]
fn a_fork_that_returns_into_the_worker_reports_nothing() {
    let rig = Rig::new(vec![spec("work")]);
    let texts: Vec<String> = (0..40)
        .map(|number| if number % 10 == 3 { format!("fork {number}") } else { format!("give {number}") })
        .collect();
    let batch = rig.score(&texts);
    assert_eq!(values(&batch, 0), (0..40).map(|number| number as f32).collect::<Vec<_>>());
    rig.close();
}

#[test]
fn without_an_interpreter_calls_fail_with_the_reason() {
    let rig = Rig::with(vec![spec("work")], 2, |config| config.python = "/nonexistent/python".into());
    let batch = rig.score(&gives(3));
    assert_eq!(statuses(&batch, 0), [Status::Error; 3]);
    assert!(reason(&batch, 0, 0).contains("could not start /nonexistent/python"), "{}", reason(&batch, 0, 0));
    rig.close();
}

#[test]
fn another_version_of_the_worker_program_is_refused_with_both() {
    let folder = std::env::temp_dir().join(format!("guerdon-protocol-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("protocol.txt"), "0\n").unwrap();
    let rig = Rig::with(vec![spec("work")], 2, |config| config.worker_dir = folder.clone());
    let batch = rig.score(&gives(3));
    assert_eq!(statuses(&batch, 0), [Status::Error; 3]);
    let reason = reason(&batch, 0, 0);
    let both = "speaks version 0 of the workers' protocol, and this process version 1: guerdon was installed anew";
    assert!(reason.contains(both), "{reason}");
    rig.close();
    std::fs::remove_dir_all(folder).unwrap();
}
