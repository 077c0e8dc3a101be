//! Reactions of the watchdog to a stall: the thread supervisor takes a dump and warns. If Python
//! does not answer, the report is written here, to stderr and to the file.
//!
//! - Nothing here takes the GIL or waits on a thread of the runtime.
//! - Calls on the lanes are shown by names and numbers, never by their contents.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use guerdon_core::clock;
use guerdon_core::in_flight::{InFlight, InFlightCall, Location};
use guerdon_core::lane;
use guerdon_core::scheduler::Scheduler;
use guerdon_core::settings::{optional_path, seconds};
use guerdon_inprocess::supervisor::SupervisorQueue;
use serde::Deserialize;
use tokio::runtime::Handle;

/// Longest time that Python may take to answer before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest time that workers may take to report their position.
const LOOK: Duration = Duration::from_secs(1);
/// Threads of this process that are listed.
const MOST_THREADS: usize = 32;

/// When to report, and where beside the log.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchdogConfig {
    #[serde(deserialize_with = "seconds")]
    after: Duration,
    #[serde(deserialize_with = "optional_path")]
    file: Option<PathBuf>,
}

/// Parts that a report reads; it keeps nothing alive.
struct WatchdogSources {
    names: Vec<String>,
    scheduler: Weak<Scheduler>,
}

/// Watches the scheduler from now on.
pub fn start(
    runtime: &Handle,
    scheduler: &Arc<Scheduler>,
    supervisor: &Arc<SupervisorQueue>,
    names: Vec<String>,
    config: WatchdogConfig,
) {
    let watched = Arc::new(WatchdogSources { names, scheduler: Arc::downgrade(scheduler) });
    let (runtime, supervisor) = (runtime.clone(), Arc::downgrade(supervisor));
    let WatchdogConfig { after, file } = config;
    let patience = PATIENCE.min(after);
    scheduler.watch_stalls(after, move |stalled| {
        let Some(supervisor) = supervisor.upgrade() else { return };
        let number = supervisor.push_stall(stalled);
        let (watched, file) = (watched.clone(), file.clone());
        runtime.spawn(async move {
            tokio::time::sleep(patience).await;
            if !supervisor.has_seen_stall(number) {
                drop(supervisor);
                let write = move || report(&watched.text(stalled, patience), file.as_ref());
                // Looking at workers waits for them.
                let _ = tokio::task::spawn_blocking(write).await;
            }
        });
    });
}

fn report(text: &str, file: Option<&PathBuf>) {
    // Neither may be there any more; there is nobody to tell.
    let _ = std::io::stderr().write_all(text.as_bytes());
    if let Some(file) = file {
        let opened = OpenOptions::new().append(true).create(true).open(file);
        let _ = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    }
}

impl WatchdogSources {
    fn text(&self, stalled: Duration, patience: Duration) -> String {
        let mut text = format!(
            "guerdon: watchdog: no call has ended for {} s, and Python in process {} did not answer for {} s: C code that \
             does not let go of the interpreter's lock (GIL) keeps all its threads waiting, or the thread supervisor \
             hangs. Calls in flight:\n",
            stalled.as_secs_f64(),
            std::process::id(),
            patience.as_secs_f64(),
        );
        if let Some(scheduler) = self.scheduler.upgrade() {
            let lanes = scheduler.lanes();
            for InFlight { call, location, .. } in lane::in_flight(lanes, scheduler.clock().now_ns()) {
                self.line(&mut text, &call, &location.to_string());
            }
            for InFlight { call, location, stack } in lane::in_flight_elsewhere(lanes, LOOK) {
                let process = if matches!(location, Location::Worker(_)) { "process " } else { "" };
                self.line(&mut text, &call, &format!("{process}{location}"));
                text.push_str(&stack.text().unwrap_or_else(|why| format!("  no stack: {why}")));
                text.truncate(text.trim_end().len());
                text.push('\n');
            }
        }
        threads_of_this_process(&mut text);
        text
    }

    fn line(&self, text: &mut String, call: &InFlightCall, place: &str) {
        let name = self.names.get(call.function).map_or("?", String::as_str);
        let first = call.samples.first().map_or(0, |span| span.start);
        let count: usize = call.samples.iter().map(ExactSizeIterator::len).sum();
        let samples = if count == 1 { format!("sample {first}") } else { format!("{count} samples from {first}") };
        let age = clock::seconds(call.age_ns);
        let phase = call.phase.word();
        // Writing to a String can't fail.
        let _ = writeln!(text, "{name:?} on {samples} of batch {}: {phase} for {age:.1} s in {place}", call.batch);
    }
}

/// Appends the system's view of the threads: one that runs or waits in no lock is the one to look
/// at.
fn threads_of_this_process(text: &mut String) {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return };
    text.push_str("Threads of this process, as the system sees them:\n");
    for task in tasks.flatten().take(MOST_THREADS) {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let stat = read("stat");
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next()).unwrap_or('?');
        let state = match state {
            'R' => "running",
            'S' => "sleeping",
            'D' => "in an uninterruptible wait",
            'T' | 't' => "stopped",
            _ => "ending",
        };
        let _ = writeln!(text, "  {} {}: {state} {}", task.file_name().display(), read("comm").trim(), read("wchan"));
    }
}
