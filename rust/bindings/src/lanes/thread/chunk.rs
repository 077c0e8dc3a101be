//! A frame in the hands of a Python thread: it starts one call at a time and ends it before the next.
//!
//! - H-1  A call is ended by its thread or by the watch, whoever is first; the other finds the chunk empty.
//! - H-2  The frame is dropped with its last call, before the thread asks for more, so that more is there when it asks.
//! - H-3  A call that came back after its timeout timed out, even if the watch had not looked yet.
//! - H-4  A call that is out of time is asked where it stands before it is ended, and given `ANSWER_NS` for that: C code may hold the GIL.

use std::sync::Arc;

use guerdon_core::frame::Frame;
use guerdon_core::function::FunctionId;
use guerdon_core::in_flight::{InFlightCall, Phase};
use guerdon_core::outcome::{Failure, Times};
use guerdon_core::timeout_messages::{no_answer, timed_out};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::lanes::arguments::Arguments;
use crate::lanes::report;
use crate::lanes::thread::{SLOW_NS, Shared};

/// How long Python may take to say where a call stands. While C code holds the GIL, whoever waits for the outcome waits for the GIL too: on a
/// busy machine an answer is worth more than the moment.
const ANSWER_NS: u64 = 500_000_000;
/// Age of a call, or of the whole chunk, at which what lies behind it is taken back.
const TAKE_BACK_NS: u64 = 20_000_000;

/// What a chunk's calls took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub calls: u64,
    pub run_ns: u64,
    /// Of the thread, over the whole chunk.
    pub cpu_ns: u64,
}

/// What the watch found.
pub enum Watched {
    Fine,
    /// The call in hand takes long.
    Slow,
    /// The thread was left behind; the frame is to be dropped without a lock held.
    Over(Box<Frame>),
}

struct Inner {
    /// Taken by whoever ends the chunk: its thread, or the watch (H-1).
    frame: Option<Frame>,
    /// The next call to start, and the end of those that were not taken back.
    cursor: usize,
    end: usize,
    current: Option<usize>,
    /// The call that was asked where it stands, when, and the answer (H-4).
    asked: Option<(usize, u64)>,
    stood: Option<String>,
    /// `setup()` runs, since `started_ns`.
    in_setup: bool,
    started_ns: u64,
    /// When the first call was started.
    began_ns: u64,
    spent: Spent,
    cpu_from_ns: u64,
}

/// The part of a chunk that the watch sees.
pub struct Held {
    shared: Arc<Shared>,
    function: FunctionId,
    thread: u64,
    /// As Python calls the thread.
    ident: u64,
    timeout_ns: u64,
    /// Written by the chunk's thread and by the watch.
    inner: Mutex<Inner>,
}

#[pyclass(frozen, module = "guerdon._native")]
pub struct Chunk {
    held: Arc<Held>,
    arguments: Arguments,
    in_setup: bool,
}

impl Held {
    pub const fn function(&self) -> FunctionId {
        self.function
    }

    pub const fn thread(&self) -> u64 {
        self.thread
    }

    pub const fn ident(&self) -> u64 {
        self.ident
    }

    /// Where the call stands that was asked for.
    pub fn stands(&self, stack: String) {
        let mut inner = self.inner.lock();
        if inner.asked.is_some_and(|(asked, _)| inner.current == Some(asked)) {
            inner.stood = Some(stack);
        }
    }

    /// The call in hand, for people.
    pub fn doing(&self, now_ns: u64) -> Option<InFlightCall> {
        let inner = self.inner.lock();
        let frame = inner.frame.as_ref()?;
        let age_ns = now_ns.saturating_sub(inner.started_ns);
        if inner.in_setup {
            return Some(InFlightCall::before(frame, Phase::Setup, age_ns));
        }
        inner.current.map(|call| InFlightCall::call(frame, call, age_ns))
    }

    /// Settles the calls that have ended (T-6).
    pub fn complete_ended(&self) {
        if let Some(frame) = self.inner.lock().frame.as_mut() {
            frame.complete_ended();
        }
    }

    /// Looks at the call in hand (T-1, T-4).
    pub fn look(&self, now_ns: u64) -> Watched {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let Some(frame) = inner.frame.as_mut() else { return Watched::Fine };
        let age_ns = now_ns.saturating_sub(inner.started_ns);
        let policy = &self.shared.function(self.function).policy;
        if inner.in_setup {
            if age_ns < report::limit_ns(policy.setup_timeout) {
                return Watched::Fine;
            }
            frame.time_out_setup(None);
            self.shared.leave_behind(self.function, self.thread, true, true);
            return inner.frame.take().map_or(Watched::Fine, |frame| Watched::Over(Box::new(frame)));
        }
        frame.complete_ended();
        let Some(call) = inner.current else { return Watched::Fine };
        let swept = !frame.is_open(call);
        if swept || age_ns >= self.timeout_ns {
            if !swept {
                match inner.asked.filter(|(asked, _)| *asked == call) {
                    None => {
                        (inner.asked, inner.stood) = (Some((call, now_ns)), None);
                        self.shared.ask_where(self.thread, self.ident);
                        return Watched::Slow;
                    }
                    Some((_, at_ns)) if inner.stood.is_none() && now_ns.saturating_sub(at_ns) < ANSWER_NS => {
                        return Watched::Slow;
                    }
                    Some(_) => {}
                }
                let times = Times { started_ns: inner.started_ns, run_ns: age_ns };
                frame.fail(call, timed_out(no_answer(policy.timeout), inner.stood.take()), times);
            }
            self.shared.leave_behind(self.function, self.thread, !swept, false);
            return inner.frame.take().map_or(Watched::Fine, |frame| Watched::Over(Box::new(frame)));
        }
        let chunk_ns = now_ns.saturating_sub(inner.began_ns);
        if age_ns.max(chunk_ns) >= TAKE_BACK_NS && inner.cursor < inner.end {
            let behind = inner.cursor..inner.end;
            inner.end = inner.cursor;
            frame.observe(age_ns.max(chunk_ns / (inner.spent.calls + 1)));
            frame.give_back(behind);
        }
        if age_ns >= SLOW_NS { Watched::Slow } else { Watched::Fine }
    }

    /// Starts the next call; how many were passed over for it, or -1 when there is none, and then the chunk is over.
    fn advance(&self, mut guard: parking_lot::MutexGuard<'_, Inner>, now_ns: u64) -> isize {
        let inner = &mut *guard;
        let Some(frame) = inner.frame.as_ref() else { return -1 };
        let behind = inner.cursor;
        while inner.cursor < inner.end {
            let call = inner.cursor;
            inner.cursor += 1;
            if frame.is_pending(call) && frame.is_open(call) {
                inner.current = Some(call);
                inner.started_ns = now_ns;
                return report::index_or_none(Some(call - behind));
            }
        }
        inner.spent.cpu_ns = report::thread_cpu_ns().saturating_sub(inner.cpu_from_ns);
        let spent = inner.spent;
        let frame = inner.frame.take();
        drop(guard);
        self.shared.chunk_over(self.function, self.thread, spent);
        drop(frame);
        -1
    }

    /// Ends the call in hand and starts the next.
    fn end(&self, end: impl FnOnce(&mut Frame, usize, Times)) -> isize {
        let now_ns = self.shared.clock.now_ns();
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let started_ns = inner.started_ns;
        let Some(call) = inner.current.take() else { return -1 };
        let Some(frame) = inner.frame.as_mut() else { return -1 };
        let times = Times { started_ns, run_ns: now_ns.saturating_sub(started_ns) };
        if times.run_ns > self.timeout_ns {
            let policy = &self.shared.function(self.function).policy;
            let stood = inner.stood.take().filter(|_| inner.asked.is_some_and(|(asked, _)| asked == call));
            frame.fail(call, timed_out(no_answer(policy.timeout), stood), times);
        } else {
            end(frame, call, times);
        }
        inner.spent.calls += 1;
        inner.spent.run_ns += times.run_ns;
        self.advance(guard, now_ns)
    }

    fn fail(&self, failure: Failure) -> isize {
        self.end(|frame, call, times| frame.fail(call, failure, times))
    }
}

impl Chunk {
    pub fn new(shared: Arc<Shared>, thread: u64, ident: u64, frame: Frame, in_setup: bool) -> Self {
        let arguments = Arguments::of(&frame);
        let function = frame.function_id();
        let timeout_ns = report::limit_ns(shared.function(function).policy.timeout);
        let inner = Inner {
            cursor: 0,
            end: frame.len(),
            current: None,
            asked: None,
            stood: None,
            in_setup,
            started_ns: shared.clock.now_ns(),
            began_ns: 0,
            spent: Spent::default(),
            cpu_from_ns: report::thread_cpu_ns(),
            frame: Some(frame),
        };
        let held = Held { shared, function, thread, ident, timeout_ns, inner: Mutex::new(inner) };
        Self { held: Arc::new(held), arguments, in_setup }
    }

    pub const fn held(&self) -> &Arc<Held> {
        &self.held
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // A thread that lets go of its chunk early gives the rest back.
        let mut inner = self.held.inner.lock();
        inner.cursor = inner.end;
        self.held.advance(inner, 0);
    }
}

#[pymethods]
impl Chunk {
    /// Whether this thread must run the function's `setup()` first, and say how that went.
    #[getter]
    const fn setup(&self) -> bool {
        self.in_setup
    }

    fn setup_done(&self) {
        let mut inner = self.held.inner.lock();
        if inner.frame.is_some() {
            inner.in_setup = false;
            drop(inner);
            self.held.shared.setup_over(self.held.function, None);
        }
    }

    fn setup_failed(&self, reason: &str, traceback: Option<&str>) {
        let mut inner = self.held.inner.lock();
        inner.in_setup = false;
        let Some(frame) = inner.frame.as_mut() else { return };
        frame.fail_setup(reason.to_owned(), traceback.map(str::to_owned));
        inner.cursor = inner.end;
        drop(inner);
        self.held.shared.setup_over(self.held.function, Some((reason, traceback)));
        self.held.advance(self.held.inner.lock(), 0);
    }

    #[getter]
    const fn kind(&self) -> &'static str {
        self.arguments.kind()
    }

    /// Number of calls.
    #[getter]
    fn calls(&self) -> usize {
        self.held.inner.lock().frame.as_ref().map_or(0, Frame::len)
    }

    /// First sample of each call.
    #[getter]
    fn firsts<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let firsts = report::firsts(self.held.inner.lock().frame.as_ref());
        report::packed(py, firsts.into_iter())
    }

    /// First sample of all, if each call takes one and they follow one another.
    #[getter]
    fn line(&self) -> Option<usize> {
        report::line(self.held.inner.lock().frame.as_ref())
    }

    #[getter]
    fn samples(&self) -> usize {
        self.arguments.samples()
    }

    #[getter]
    fn size(&self) -> usize {
        self.arguments.size()
    }

    #[getter]
    fn names(&self, py: Python<'_>) -> PyResult<Option<Py<PyTuple>>> {
        self.arguments.names(py)
    }

    #[getter]
    fn columns(&self, py: Python<'_>) -> PyResult<Py<PyList>> {
        self.arguments.columns(py, 0)
    }

    /// Of a call on samples of several batches: the columns of one of them.
    fn columns_of(&self, py: Python<'_>, share: usize) -> PyResult<Py<PyList>> {
        self.arguments.columns(py, share)
    }

    #[getter]
    fn rows(&self, py: Python<'_>) -> PyResult<Option<Py<PyList>>> {
        self.arguments.tuples(py)
    }

    /// Of the call in hand.
    fn scores<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let inner = self.held.inner.lock();
        let scores = match (&inner.frame, inner.current) {
            (Some(frame), Some(call)) => frame.scores(call),
            _ => Vec::new(),
        };
        drop(inner);
        report::scores(py, scores)
    }

    /// Whether the call in hand still counts; once it does not, its values may be gone.
    fn is_open(&self) -> bool {
        let inner = self.held.inner.lock();
        matches!((&inner.frame, inner.current), (Some(frame), Some(call)) if frame.is_open(call))
    }

    /// The samples of the call in hand on gathered ones, as 8 bytes each, its share in the upper four, without those that count no
    /// more; they may get fewer.
    fn gathered<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut inner = self.held.inner.lock();
        let Inner { frame, current, .. } = &mut *inner;
        let samples = report::gathered(frame.as_mut(), *current);
        drop(inner);
        report::packed(py, samples.into_iter().map(u64::to_ne_bytes))
    }

    fn start(&self) -> isize {
        let now_ns = self.held.shared.clock.now_ns();
        let mut inner = self.held.inner.lock();
        inner.began_ns = now_ns;
        self.held.advance(inner, now_ns)
    }

    /// Of the call in hand, for limits on tokens.
    fn used(&self, tokens: f64) {
        if let Some(frame) = self.held.inner.lock().frame.as_mut() {
            frame.used(tokens);
        }
    }

    fn ok(&self, value: f64) -> isize {
        self.held.end(|frame, call, times| frame.complete_soon(call, value, times))
    }

    fn cell(&self, status: u8, value: f64, records: Option<&Bound<'_, PyBytes>>) -> isize {
        let json = report::json(records);
        self.held.end(|frame, call, times| {
            if let Some(json) = json {
                frame.record(call, json);
            }
            frame.complete(call, report::cell(status, value), times);
        })
    }

    fn cells(
        &self,
        statuses: &[u8],
        values: &[u8],
        wrong: &Bound<'_, PyList>,
        records: Option<&Bound<'_, PyBytes>>,
    ) -> PyResult<isize> {
        let cells = report::cells(statuses, values, wrong)?;
        let json = report::json(records);
        Ok(self.held.end(|frame, call, times| {
            if let Some(json) = json {
                frame.record(call, json);
            }
            frame.complete_many(call, cells, times);
        }))
    }

    fn fail(
        &self,
        reason: String,
        traceback: Option<String>,
        retryable: bool,
        retry_after: Option<f64>,
        answer: Option<u16>,
    ) -> isize {
        self.held.fail(report::failure(reason, traceback, retryable, retry_after, answer))
    }
}
