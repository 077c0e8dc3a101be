//! Tasks of the runtime that all calls depend on. A task that panics is started again, so that no
//! caller waits for its work for ever.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::Handle;

/// The pause before a task is started again, so that a task that panics at once does not use up a
/// core.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs the future of `make` on the runtime until it returns, and another one after each panic. The
/// panic's own message reports it.
pub fn spawn_restarted<F>(runtime: &Handle, make: impl Fn() -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let handle = runtime.clone();
    runtime.spawn(async move {
        loop {
            match handle.spawn(make()).await {
                // The task was cancelled because the runtime ends.
                Err(ended) if ended.is_panic() => tokio::time::sleep(PAUSE).await,
                _ => return,
            }
        }
    });
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_started_again() {
        let (runs, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Notify::new()));
        let (count, end) = (runs.clone(), done.clone());
        spawn_restarted(&Handle::current(), move || {
            let (count, end) = (count.clone(), end.clone());
            async move {
                if count.fetch_add(1, Ordering::Relaxed) < 2 {
                    std::panic::resume_unwind(Box::new("by the test"));
                }
                end.notify_one();
            }
        });
        done.notified().await;
        tokio::time::sleep(PAUSE * 10).await;
        assert_eq!(runs.load(Ordering::Relaxed), 3);
    }
}
