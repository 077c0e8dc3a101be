//! The tokio runtime: one a process, shared by all engines.
//!
//! - A forked child never touches its parent's runtime, whose threads it lacks: it makes its own.
//! - A runtime is never dropped: its threads wait in the kernel when idle, and dropping it at
//!   interpreter exit could wait for them.

use std::io;
use std::sync::atomic::{AtomicPtr, Ordering};

use tokio::runtime::{Builder, Handle, Runtime};

/// Threads of the runtime. They only pass work on; what takes time runs in workers, loops and
/// threads of the lanes.
const THREADS: usize = 2;

struct ProcessRuntime {
    pid: u32,
    runtime: Runtime,
}

static CURRENT: AtomicPtr<ProcessRuntime> = AtomicPtr::new(std::ptr::null_mut());

/// The runtime of this process.
pub fn handle() -> io::Result<Handle> {
    let pid = std::process::id();
    loop {
        let seen = CURRENT.load(Ordering::Acquire);
        #[expect(unsafe_code, reason = "the pointer is null or leaked")]
        // SAFETY: `CURRENT` holds null or what `Box::into_raw` gave below, which is never freed.
        if let Some(tagged) = unsafe { seen.as_ref() }
            && tagged.pid == pid
        {
            return Ok(tagged.runtime.handle().clone());
        }
        let runtime =
            Builder::new_multi_thread().worker_threads(THREADS).thread_name("guerdon").enable_all().build()?;
        let made = Box::into_raw(Box::new(ProcessRuntime { pid, runtime }));
        if CURRENT.compare_exchange(seen, made, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // Another thread was quicker. This runtime has no tasks, so letting it go does not
            // wait.
            #[expect(unsafe_code, reason = "takes back what was not published")]
            // SAFETY: `made` came from `Box::into_raw` above and was not published.
            let spare = unsafe { Box::from_raw(made) };
            spare.runtime.shutdown_background();
        }
    }
}
