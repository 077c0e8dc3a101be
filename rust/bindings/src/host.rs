//! `Carrier`: what takes the messages of a link to another process of this host, and brings its.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use guerdon_core::pidfd::Pidfd;
use guerdon_remote::host::{CarryEnd, Ends, Patience};
use guerdon_remote::{Link, Pace};
use parking_lot::Mutex;
use pyo3::prelude::*;
use rustix::process::{Pid, Signal};
use tokio::net::UnixStream;

use crate::gil;
use crate::nodes::PyLink;
use crate::runtime;

/// One end of a link.
struct LinkEnd(Arc<Link>);

impl Ends for LinkEnd {
    async fn next(&self) -> Option<Vec<u8>> {
        self.0.next(Pace::AT_ONCE).await
    }

    fn deliver(&self, message: Vec<u8>) {
        self.0.deliver(message);
    }
}

/// The socket of the task; its entry has left before it is closed.
struct Connection {
    // Fields are dropped in this order.
    entered: SocketEntry,
    socket: UnixStream,
    /// Closed with it, which tells who reads from the other end of this pipe.
    _ended: Option<OwnedFd>,
}

/// The descriptor that a forked child closes, -1 once it is closed; and what tells of that.
struct SocketEntry {
    socket: Arc<AtomicI32>,
    _closing: Sender<()>,
}

impl Drop for SocketEntry {
    fn drop(&mut self) {
        self.socket.store(-1, Ordering::Release);
    }
}

/// See the module.
#[pyclass(frozen, module = "guerdon._native", name = "Carrier")]
pub struct Carrier {
    pid: u32,
    /// Written by the task.
    socket: Arc<AtomicI32>,
    /// Disconnected by the end of the connection.
    ended: Mutex<Receiver<()>>,
}

#[pymethods]
impl Carrier {
    /// Waits up to `timeout` seconds for the end of the connection; whether it has ended.
    fn wait(&self, py: Python<'_>, timeout: f64) -> bool {
        if self.pid != std::process::id() {
            return true;
        }
        let timeout = Duration::try_from_secs_f64(timeout.max(0.0)).unwrap_or_default();
        gil::detached(py, || self.ended.lock().recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected))
    }

    /// Runs in a forked child: closes its copy of the socket, so that the other process sees the
    /// parent end.
    fn close_inherited(&self) {
        let socket = self.socket.swap(-1, Ordering::AcqRel);
        if self.pid != std::process::id() && socket >= 0 {
            #[expect(unsafe_code, reason = "the copy of a descriptor that no object of this process closes")]
            // SAFETY: the parent had it open when it forked, and what owns it is never dropped
            // here.
            unsafe {
                rustix::io::close(socket);
            }
        }
    }
}

/// Carries the messages of a link over a connected socket, which it takes over, as it does
/// `handle` and `ended`, until either end is done.
#[pyfunction]
#[pyo3(signature = (link, socket, *, process, handle = None, patience = None, ended = None))]
pub fn carry(
    link: &PyLink,
    socket: RawFd,
    process: i32,
    handle: Option<RawFd>,
    patience: Option<f64>,
    ended: Option<RawFd>,
) -> PyResult<Carrier> {
    #[expect(unsafe_code, reason = "descriptors that Python has handed over")]
    // SAFETY: the caller has detached them: nothing else closes them.
    let (socket, [handle, ended]) =
        unsafe { (OwnedFd::from_raw_fd(socket), [handle, ended].map(|fd| fd.map(|fd| OwnedFd::from_raw_fd(fd)))) };
    let runtime = runtime::handle()?;
    let _inside = runtime.enter();
    let socket = StdStream::from(socket);
    socket.set_nonblocking(true)?;
    let entry = Arc::new(AtomicI32::new(socket.as_raw_fd()));
    let (closing, closed) = channel();
    let entered = SocketEntry { socket: entry.clone(), _closing: closing };
    let connection = Connection { entered, socket: UnixStream::from_std(socket)?, _ended: ended };
    // If processes can't be watched, only the socket tells of its end.
    let peer = match handle {
        Some(handle) => Pidfd::of(handle).ok(),
        None => Pid::from_raw(process).and_then(|pid| Pidfd::open(pid).ok()),
    };
    let patience = patience.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    runtime.spawn(serve(connection, link.link().clone(), peer, patience));
    Ok(Carrier { pid: std::process::id(), socket: entry, ended: Mutex::new(closed) })
}

async fn serve(mut connection: Connection, link: Arc<Link>, peer: Option<Pidfd>, patience: Option<Duration>) {
    let end = LinkEnd(link.clone());
    let carried =
        guerdon_remote::host::carry(&mut connection.socket, &end, peer.as_ref(), patience.map(Patience)).await;
    match carried {
        CarryEnd::Closed => {}
        CarryEnd::Lost(how) => link.lost(&how, false),
        CarryEnd::Silent => {
            // It would go on with frames that are tried again elsewhere.
            if let Some(peer) = &peer {
                let _ = peer.signal(Signal::KILL); // it may have ended
            }
            let seconds = patience.unwrap_or_default().as_secs_f64();
            link.lost(&format!("it did not answer for {seconds:.0} s, and was killed"), false);
        }
    }
    let Connection { entered, socket, _ended } = connection;
    drop(entered);
    drop(socket);
}

/// Takes a child process off the table of processes when it has ended.
#[pyfunction]
pub fn reap_child(process: i32) -> PyResult<()> {
    let runtime = runtime::handle()?;
    let _inside = runtime.enter();
    if let Some(child) = Pid::from_raw(process).and_then(|pid| Pidfd::open(pid).ok()) {
        runtime.spawn(async move { child.reap().await });
    }
    Ok(())
}
