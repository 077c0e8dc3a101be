//! An engine with a real process lane, and functions that do what their texts say (`functions.py`).
#![expect(clippy::unwrap_used, reason = "a rig that can't be set up fails its test")]

use std::any::Any;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use guerdon_core::batch::{Batch, BatchSpec};
use guerdon_core::clock::Clock;
use guerdon_core::function::{Function, FunctionId, Shape};
use guerdon_core::outcome::Status;
use guerdon_core::payload::Payload;
use guerdon_core::scheduler::Scheduler;
use guerdon_process::{ProcessConfig, ProcessLane, ResourceLimits};
use guerdon_wire::columns::ColumnsWriter;
use guerdon_wire::sent_constants::SentConstants;
use guerdon_wire::text::{RawText, TextKind};
use parking_lot::Mutex;
use tokio::runtime::Runtime;

/// One function of the rig.
pub struct Spec {
    pub module: &'static str,
    pub target: &'static str,
    pub function: Function,
    pub limits: ResourceLimits,
}

/// A function of `functions.py`, called per sample.
pub fn spec(target: &'static str) -> Spec {
    let mut function = guerdon_testkit::function(target, Shape::Sample);
    function.policy.timeout = Duration::from_secs(2);
    function.policy.grace = Duration::from_millis(200);
    function.policy.setup_timeout = Duration::from_secs(20);
    Spec { module: "functions", target, function, limits: ResourceLimits::default() }
}

impl Spec {
    /// Takes the function from another module than `functions.py`.
    pub fn of(mut self, module: &'static str) -> Self {
        self.module = module;
        self
    }

    pub fn with(mut self, change: impl FnOnce(&mut Function)) -> Self {
        change(&mut self.function);
        self
    }
}

struct Texts {
    texts: Vec<(TextKind, Vec<u8>)>,
    shapes: Vec<Shape>,
    names: Vec<String>,
}

impl Payload for Texts {
    fn names(&self, function: FunctionId, finish: bool) -> Option<&[String]> {
        (finish || self.shapes[function] != Shape::Sample).then_some(&self.names)
    }

    fn encode(&self, _: FunctionId, _: bool, samples: &[u32], _: &mut SentConstants, out: &mut Vec<u8>) {
        let mut columns = ColumnsWriter::new(out, samples.len(), 1);
        columns.text(0, |row| {
            let (kind, bytes) = &self.texts[samples[row] as usize];
            RawText { kind: *kind, bytes }
        });
    }

    fn bytes(&self, _: FunctionId, sample: u32) -> usize {
        self.texts[sample as usize].1.len()
    }

    fn mixes(&self, _: FunctionId) -> bool {
        true
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub struct Rig {
    pub runtime: Runtime,
    pub scheduler: Scheduler,
    pub lane: Arc<ProcessLane>,
    /// What the workers printed.
    pub printed: Arc<Mutex<String>>,
    shapes: Vec<Shape>,
}

impl Rig {
    pub fn new(specs: Vec<Spec>) -> Self {
        Self::with(specs, 2, |_| {})
    }

    pub fn with(specs: Vec<Spec>, workers: usize, change: impl FnOnce(&mut ProcessConfig)) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let clock = {
            let _context = runtime.enter();
            Clock::start()
        };
        let functions: Vec<Function> = specs.iter().map(|spec| spec.function.clone()).collect();
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut config =
            ProcessConfig::new(python(), root.join("python/guerdon/_worker"), serialized_functions(&specs), workers);
        let printed = Arc::new(Mutex::new(String::new()));
        let sink = printed.clone();
        config.sink = Arc::new(move |lines| sink.lock().push_str(&String::from_utf8_lossy(lines)));
        change(&mut config);
        let lane = ProcessLane::new(runtime.handle().clone(), clock, &functions, 0, config);
        let shapes = functions.iter().map(|function| function.shape).collect();
        let scheduler = Scheduler::start(runtime.handle(), clock, functions, vec![lane.clone()]);
        Self { runtime, scheduler, lane, printed, shapes }
    }

    pub fn submit<T: AsRef<str>>(&self, texts: &[T], group_size: usize) -> Arc<Batch> {
        let raw = texts.iter().map(|text| raw(text.as_ref())).collect();
        self.submit_raw(raw, group_size)
    }

    pub fn submit_raw(&self, texts: Vec<(TextKind, Vec<u8>)>, group_size: usize) -> Arc<Batch> {
        let samples = texts.len();
        let payload = Box::new(Texts { texts, shapes: self.shapes.clone(), names: vec!["texts".to_owned()] });
        self.scheduler.submit(BatchSpec::whole(samples, group_size, payload)).unwrap()
    }

    /// Scores and waits.
    pub fn score<T: AsRef<str>>(&self, texts: &[T]) -> Arc<Batch> {
        let batch = self.submit(texts, 1);
        wait(&batch);
        batch
    }

    /// Scores with a function that is ready, so that what follows measures no start.
    pub fn warm(&self) {
        let texts = vec!["give 1"; 8];
        self.score(&texts);
        let start = Instant::now();
        while self.lane.worker_pids().len() < 2 && start.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn close(self) {
        self.runtime.block_on(self.scheduler.close());
        assert_eq!(self.lane.worker_pids(), Vec::<i32>::new());
    }
}

/// A text as Python would hold it.
fn raw(text: &str) -> (TextKind, Vec<u8>) {
    if text.is_ascii() {
        (TextKind::Ascii, text.as_bytes().to_vec())
    } else {
        (TextKind::Utf32, text.chars().flat_map(|char| u32::from(char).to_le_bytes()).collect())
    }
}

/// Waits for the end of a batch; a batch that hangs fails its test.
pub fn wait(batch: &Batch) {
    let end = batch.end().unwrap();
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(end.fd(), rustix::event::PollFlags::IN)];
    let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&limit)).unwrap();
    assert!(batch.is_done(), "the batch hangs");
}

/// Statuses of one function's cells.
pub fn statuses(batch: &Batch, function: FunctionId) -> Vec<Status> {
    (0..batch.samples()).map(|sample| batch.shown(sample, function).1).collect()
}

/// Values of one function's cells, NaN where there is none.
pub fn values(batch: &Batch, function: FunctionId) -> Vec<f32> {
    (0..batch.samples()).map(|sample| batch.shown(sample, function).0).collect()
}

/// Why a cell failed.
pub fn reason(batch: &Batch, sample: usize, function: FunctionId) -> String {
    batch.note_of(sample, function).map(|note| note.reason).unwrap_or_default()
}

fn python() -> PathBuf {
    let name = std::env::var_os("GUERDON_TEST_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from);
    let output = Command::new(&name).args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// What `guerdon._functions.serialization.serialized_functions` would pickle.
fn serialized_functions(specs: &[Spec]) -> Vec<u8> {
    let script = r#"
import pickle, sys
folder, shapes, *targets = sys.argv[1], sys.argv[2].split(), *sys.argv[3:]
limits = [target.split(":")[2:] for target in targets]
targets = [target.rsplit(":", 2)[0] for target in targets]
functions = [
    {"recipe": {"name": target.split(":")[1], "shape": shape, "rowwise": False, "records": [], "stateful": target.split(":")[1] in ("well", "fails", "hangs", "dies"),
                "memory_limit": int(memory) or None, "max_output": int(output) or None},
     "target": ("ref", *target.split(":"))}
    for target, shape, (memory, output) in zip(targets, shapes, limits)
]
content = {"sys_path": [folder, *sys.path[1:]], "main_path": None, "main_name": None, "stamps": {}, "functions": functions}
sys.stdout.buffer.write(pickle.dumps(content))
"#;
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/process");
    let shapes: Vec<&str> = specs
        .iter()
        .map(|spec| match spec.function.shape {
            Shape::Sample => "sample",
            Shape::Group => "group",
            Shape::Batch => "batch",
        })
        .collect();
    let output = Command::new(python())
        .args(["-c", script])
        .arg(folder)
        .arg(shapes.join(" "))
        .args(specs.iter().map(|spec| {
            let [memory, output] = [spec.limits.memory_limit, spec.limits.max_output].map(Option::unwrap_or_default);
            format!("{}:{}:{memory}:{output}", spec.module, spec.target)
        }))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
