//! Work to do at a fork of the process: the child closes its copies of sockets that the parent
//! serves. Python calls these before and after each fork.

use std::os::fd::{BorrowedFd, RawFd};

use guerdon_telemetry::metrics::open_sockets;
use pyo3::prelude::*;

use crate::gil;

/// Before a fork, on the thread that forks: no server begins to listen meanwhile.
#[pyfunction]
pub fn hold_sockets(py: Python<'_>) {
    // The locks may belong to another thread that forks, and waits for the GIL.
    gil::detached(py, open_sockets::hold);
}

/// After a fork, in the parent.
#[pyfunction]
pub fn release_sockets() {
    open_sockets::release();
}

/// After a fork, in the child: closes its copies, which nobody here serves.
#[pyfunction]
pub fn close_inherited_sockets() {
    let addresses = open_sockets::inherited();
    if addresses.is_empty() {
        return;
    }
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<RawFd> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open {
        #[expect(unsafe_code, reason = "the copies of descriptors that no object of this process closes")]
        // SAFETY: the child has one thread, so that it is open until it is closed here; what owns
        // it is never dropped here.
        unsafe {
            if addresses.iter().any(|address| address.has(BorrowedFd::borrow_raw(fd))) {
                rustix::io::close(fd);
            }
        }
    }
}
