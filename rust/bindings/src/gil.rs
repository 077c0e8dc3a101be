//! Every wait of the bindings, and so every place where the GIL is released and taken again.
//!
//! - Nothing waits with the GIL held: what may take longer than a short lock runs in `detached`.
//! - No thread of the runtime ever attaches to Python; only threads that Python made come through
//!   here, and a journal's writer, which keeps away once the interpreter is about to end.
//! - A waiting main thread answers signals at once: it waits in `poll`, which a signal interrupts.

use std::cell::{Cell, RefCell};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use guerdon_core::wake::Wake;
use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::runtime::Handle;

/// The longest sleep between two looks at pending signals. A net only: a signal that another thread
/// caught does not interrupt `poll`.
const SIGNAL_NET: Duration = Duration::from_secs(1);

/// Longest time that our work delays a signal.
const SIGNALS_AFTER: Duration = Duration::from_millis(50);

/// Number of values that are read in one go: a few milliseconds, if their memory is cold.
pub const PIECE: usize = 1 << 16;

/// Lets other threads have the GIL, if they wait for it.
pub fn pass_on(py: Python<'_>) {
    py.detach(|| ());
}

/// Runs `work` without the GIL.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    py.detach(work)
}

/// Runs `work` without the GIL; what it is given says, at most every `SIGNALS_AFTER`, whether a
/// signal's handler raised something: then that is raised here when `work` has ended.
pub fn interruptible<T: Send>(py: Python<'_>, work: impl FnOnce(&dyn Fn() -> bool) -> T + Send) -> PyResult<T> {
    let (done, raised) = detached(py, || {
        let (looked, raised) = (Cell::new(Instant::now()), RefCell::new(None));
        let is_raised = || {
            if raised.borrow().is_none() && looked.get().elapsed() > SIGNALS_AFTER {
                #[expect(clippy::disallowed_methods, reason = "a thread that Python made, in a call of Python's")]
                let found = Python::try_attach(|py| py.check_signals().err());
                raised.replace(found.flatten());
                looked.set(Instant::now());
            }
            raised.borrow().is_some()
        };
        let done = work(&is_raised);
        (done, raised.into_inner())
    });
    raised.map_or(Ok(done), Err)
}

/// Runs `work` with the GIL on a journal's thread, which Python did not make; `None` where the
/// interpreter is ending.
pub fn attached_writer<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    #[expect(clippy::disallowed_methods, reason = "the one thread of the engine's own that reads Python values")]
    Python::try_attach(work)
}

/// Waits until `fd` is readable, the GIL released; false when `end` came first. Raises what a
/// signal handler raises.
pub fn readable(py: Python<'_>, fd: BorrowedFd<'_>, end: Option<Instant>) -> PyResult<bool> {
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let nap = left.unwrap_or(SIGNAL_NET).min(SIGNAL_NET);
        let ready = detached(py, || {
            let nap = Timespec {
                tv_sec: i64::try_from(nap.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: nap.subsec_nanos().into(),
            };
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&nap))
        });
        match ready {
            Ok(0) | Err(Errno::INTR) => py.check_signals()?,
            Ok(_) => return Ok(true),
            Err(error) => return Err(std::io::Error::from(error).into()),
        }
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(false);
        }
    }
}

/// Waits until `work` is done on the runtime, the GIL released; `None` when that takes longer.
/// Raises what a signal handler raises; then `work` goes on.
pub fn finished<T: Send + 'static>(
    py: Python<'_>,
    runtime: &Handle,
    timeout: Duration,
    work: impl Future<Output = T> + Send + 'static,
) -> PyResult<Option<T>> {
    let (sender, receiver) = channel();
    let Ok(wake) = Wake::new().map(Arc::new) else {
        // Signals wait too if there is no descriptor to wait by.
        let working = runtime.spawn(work);
        return Ok(detached(py, || {
            runtime.block_on(async move { tokio::time::timeout(timeout, working).await.ok().and_then(Result::ok) })
        }));
    };
    let done = wake.clone();
    runtime.spawn(async move {
        let _ = sender.send(work.await);
        done.notify();
    });
    readable(py, wake.fd(), Instant::now().checked_add(timeout))?;
    Ok(receiver.try_recv().ok())
}

/// When a wait that Python gave `seconds` ends; negative means at once, and no end is one beyond
/// all time.
pub fn end_of(seconds: Option<f64>) -> Option<Instant> {
    let wait = Duration::try_from_secs_f64(seconds?.max(0.0)).ok()?;
    Instant::now().checked_add(wait)
}
