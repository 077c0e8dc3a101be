//! Questions of the http lane that threads of Python's answer: `KeyRequests` for an API key, by
//! calling a function of the user, and `ProgramQuestions` for the next step of a program in a
//! sandbox. They end with the reward function that they belong to.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use guerdon_core::report::Report;
use guerdon_http::{
    Callback, KeyAnswer, KeySource, Program, ProgramJudge, ProgramQuestion, ProgramStep, RunEnd, SandboxRun,
};
use parking_lot::Mutex;
use pyo3::prelude::*;
use tokio::sync::oneshot;

use crate::gil::detached;

type Sending<Q> = Arc<Mutex<Option<Sender<Q>>>>;

/// Questions for one thread.
struct Questions<Q> {
    /// Taken by the http lane, which then keeps the sender.
    ask: Mutex<Option<Sending<Q>>>,
    /// The sender. Emptied by `close`.
    sending: Weak<Mutex<Option<Sender<Q>>>>,
    asked: Mutex<Receiver<Q>>,
}

impl<Q: Send + 'static> Questions<Q> {
    fn new() -> Self {
        let (ask, asked) = channel();
        let ask = Arc::new(Mutex::new(Some(ask)));
        let sending = Arc::downgrade(&ask);
        Self { ask: Mutex::new(Some(ask)), sending, asked: Mutex::new(asked) }
    }

    /// A function that sends questions; taken once. A question is dropped if the thread has ended.
    fn asking(&self) -> Option<impl Fn(Q) + Send + Sync + use<Q>> {
        let ask = self.ask.lock().take()?;
        Some(move |question| {
            let _ = ask.lock().as_ref().map(|ask| ask.send(question));
        })
    }

    fn close(&self) {
        drop(self.sending.upgrade().and_then(|ask| ask.lock().take()));
    }

    /// Waits for the next question that somebody waits for.
    fn next(&self, py: Python<'_>, is_wanted: impl Fn(&Q) -> bool + Send) -> Option<Q> {
        detached(py, || self.asked.lock().iter().find(is_wanted))
    }
}

/// See the module.
#[pyclass(frozen, module = "guerdon._native")]
pub struct KeyRequests {
    questions: Questions<KeyAnswer>,
    /// The request that is being answered. Written by Python's thread.
    current: Mutex<Option<KeyAnswer>>,
}

#[pymethods]
impl KeyRequests {
    #[new]
    fn new() -> Self {
        Self { questions: Questions::new(), current: Mutex::default() }
    }

    /// Ends `next`: no request is answered any more.
    fn close(&self) {
        self.questions.close();
    }

    /// Waits for the next request that nobody has given up; false at the end.
    fn next(&self, py: Python<'_>) -> bool {
        let next = self.questions.next(py, |request| !request.is_closed());
        let is_there = next.is_some();
        *self.current.lock() = next;
        is_there
    }

    /// Answers that request with a key, or with the reason of the function's failure.
    #[pyo3(signature = (key, why = String::new()))]
    fn answer(&self, key: Option<String>, why: String) {
        if let Some(request) = self.current.lock().take() {
            // Nobody may wait any more.
            let _ = request.send(key.ok_or(why));
        }
    }
}

/// A run: how it ended, exit status, seconds, standard output and error.
type RunArg = (&'static str, i64, f64, String, String);

/// A question: the values of a new program, or one that was begun, its last run, and the place for
/// the answer.
type QuestionArg = (Option<String>, Option<Py<PyAny>>, Option<RunArg>, ProgramAnswer);

/// See the module.
#[pyclass(frozen, module = "guerdon._native")]
pub struct ProgramQuestions(Questions<ProgramQuestion>);

#[pymethods]
impl ProgramQuestions {
    #[new]
    fn new() -> Self {
        Self(Questions::new())
    }

    /// Ends `next`: no question is answered any more.
    fn close(&self) {
        self.0.close();
    }

    /// Waits for the next question that nobody has given up; none at the end. Threads wait in turn.
    fn next(&self, py: Python<'_>) -> Option<QuestionArg> {
        let ProgramQuestion { program, run, answer } = self.0.next(py, |question| !question.answer.is_closed())?;
        let (values, begun) = match program {
            Program::New(values) => (Some(values), None),
            Program::Begun(begun) => (None, begun.downcast::<Py<PyAny>>().ok().map(|begun| *begun)),
        };
        Some((values, begun, run.map(run_arg), ProgramAnswer(Mutex::new(Some(answer)))))
    }
}

/// The place for the answer to one question.
#[pyclass(frozen, module = "guerdon._native")]
pub struct ProgramAnswer(Mutex<Option<oneshot::Sender<ProgramStep>>>);

impl ProgramAnswer {
    fn answer(&self, step: ProgramStep) {
        if let Some(answer) = self.0.lock().take() {
            // Nobody may wait any more.
            let _ = answer.send(step);
        }
    }
}

#[pymethods]
impl ProgramAnswer {
    /// Answers with a request: its body, and its name in reasons.
    fn send(&self, program: Py<PyAny>, body: String, name: String) {
        self.answer(ProgramStep::Send { program: Box::new(program), body: body.into_bytes(), name });
    }

    /// Answers with a score.
    fn judged(&self, score: f64, passed: f64, cases: f64, reason: String) {
        let mut report = Report::default();
        report.add(0, "passed", passed);
        report.add(0, "cases", cases);
        report.add(0, "reason", reason);
        report.add(0, "isolation", "remote");
        self.answer(ProgramStep::Judged { score, report });
    }

    /// Answers with the reason for a missing score.
    fn fail(&self, reason: String) {
        self.answer(ProgramStep::Failed(reason));
    }
}

fn run_arg(run: SandboxRun) -> RunArg {
    let SandboxRun { end, seconds, stdout, stderr } = run;
    let (how, status) = match end {
        RunEnd::Exit(status) => ("exit", status),
        RunEnd::TimeLimit => ("time limit", 0),
        RunEnd::NotCompiled => ("not compiled", 0),
        RunEnd::CompilerTimeLimit => ("compiler time limit", 0),
        RunEnd::TooLong => ("too long", 0),
    };
    (how, status, seconds, stdout, stderr)
}

/// An object of Python's that answers questions.
#[derive(FromPyObject)]
pub enum CallbackArg<'py> {
    Key(PyRef<'py, KeyRequests>),
    Programs(PyRef<'py, ProgramQuestions>),
}

impl CallbackArg<'_> {
    /// The callback of the http lane; taken once.
    pub fn callback(&self) -> Option<Callback> {
        match self {
            Self::Key(requests) => {
                let ask = requests.questions.asking()?;
                Some(Callback::Key(KeySource::Function(Arc::new(ask))))
            }
            Self::Programs(questions) => {
                let ask = questions.0.asking()?;
                Some(Callback::Programs(ProgramJudge(Arc::new(ask))))
            }
        }
    }
}
