//! Background work whose end can be waited for, for a limited time.

use std::future::Future;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;

/// A channel that the end of the work disconnects, and its thread if it has one.
type RunningWork = (Receiver<()>, Option<JoinHandle<()>>);

/// Background work, whose end can be waited for; the default value has none.
#[derive(Default)]
pub(crate) struct BackgroundWork {
    /// Taken by the call that sees the end.
    running: Mutex<Option<RunningWork>>,
}

impl BackgroundWork {
    /// Begins work on a new thread. The system keeps 15 bytes of its name.
    pub(crate) fn of_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (ending, ended) = channel::<()>();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _ending = ending;
            work();
        })?;
        Ok(Self { running: Mutex::new(Some((ended, Some(thread)))) })
    }

    /// Begins work on a runtime.
    pub(crate) fn of_task(runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) -> Self {
        let (ending, ended) = channel::<()>();
        runtime.spawn(async move {
            let _ending = ending;
            work.await;
        });
        Self { running: Mutex::new(Some((ended, None))) }
    }

    /// Waits for the end for at most `timeout`; returns whether it has come.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let mut running = self.running.lock();
        let Some((ended, _)) = &*running else { return true };
        if ended.recv_timeout(timeout) != Err(RecvTimeoutError::Disconnected) {
            return false;
        }
        if let Some((_, Some(thread))) = running.take() {
            let _ = thread.join();
        }
        true
    }
}
