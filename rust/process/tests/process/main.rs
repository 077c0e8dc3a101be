//! The process lane with real processes: the faults that `tests/contract` and `tests/stress` do not
//! have.
//!
//! Needs a Python 3.11 or later: `GUERDON_TEST_PYTHON`, or `python3` on the path.

mod many_workers;
mod rig;

use std::time::Duration;

use guerdon_core::outcome::{Status, Traceback};

use rig::{Rig, reason, spec, statuses, values};

fn gives(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("give {number}")).collect()
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
