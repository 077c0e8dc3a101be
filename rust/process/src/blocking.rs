//! Blocking work, on a thread that no other work needs.

use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Runs `work` and sends its result on the channel, which is closed if the work panics. If no
/// thread can be started, because the limit on processes is reached, the work runs on this thread.
pub(super) fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
    let (sender, receiver) = oneshot::channel();
    let task = move || {
        let _ = sender.send(work()); // the receiver may be gone
    };
    // Shared: a thread that can't be started drops its closure.
    let task = Arc::new(Mutex::new(Some(task)));
    let theirs = task.clone();
    let started = thread::Builder::new().name("guerdon-waits".to_owned()).spawn(move || {
        let task = theirs.lock().take();
        if let Some(task) = task {
            task();
        }
    });
    if started.is_err()
        && let Some(task) = { task.lock().take() }
    {
        task();
    }
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_runs_elsewhere_and_a_panic_stays_there() {
        let here = thread::current().id();
        assert_ne!(run(move || thread::current().id()).await.unwrap(), here);
        assert!(run(|| panic!("on purpose")).await.is_err());
    }
}
