//! Work to do at a fork of the process: the child closes its copies of sockets that the parent
//! serves. Python calls these before and after each fork.

use guerdon_telemetry::metrics::open_sockets;
use pyo3::prelude::*;

use crate::gil;

/// Before a fork, on the thread that forks: no socket of a server is opened or closed meanwhile.
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
    for fd in open_sockets::inherited() {
        #[expect(unsafe_code, reason = "the copies of descriptors that no object of this process closes")]
        // SAFETY: the parent had it open when it forked, and what owns it is never dropped here.
        unsafe {
            rustix::io::close(fd);
        }
    }
}
