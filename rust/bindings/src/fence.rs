//! `Fence`: what keeps a child that runs a program under test from everything else. One call in the
//! child, and two around each fork.
//!
//! Python forks: nothing here runs between a fork and its child's `enter`.

use std::ffi::CString;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use guerdon_fence::{Fence, FenceError};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pythonize::pythonize;
use rustix::thread::UnshareFlags;

use crate::config::settings;

/// See the module.
// Never dropped: in a child its descriptors are closed, and their numbers another's.
#[pyclass(module = "guerdon._native", name = "Fence")]
pub struct PyFence(ManuallyDrop<Fence>);

#[pymethods]
impl PyFence {
    #[new]
    fn new(rules: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self(ManuallyDrop::new(Fence::prepare(settings(rules)?, unshare, make_fixed).map_err(exception)?)))
    }

    /// Returns whether this process has to fork, and its child to go on.
    fn needs_fork(&self) -> bool {
        self.0.needs_fork()
    }

    fn finish(&mut self) -> PyResult<()> {
        self.0.finish().map_err(exception)
    }

    /// Returns for each layer whether it holds, and a remark.
    fn layers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(pythonize(py, self.0.layers())?)
    }

    fn folder(&self) -> Option<PathBuf> {
        self.0.folder().map(ToOwned::to_owned)
    }

    fn clear_folder(&mut self) -> PyResult<()> {
        self.0.clear_folder().map_err(exception)
    }

    fn shares_tasks(&self) -> bool {
        self.0.shares_tasks()
    }

    fn leave_room_for_tasks(&mut self, others: u64) {
        self.0.leave_room_for_tasks(others);
    }

    fn before_fork(&self) -> PyResult<()> {
        Ok(self.0.before_fork()?)
    }

    fn after_fork(&self) -> PyResult<()> {
        Ok(self.0.after_fork()?)
    }

    fn enter(&self, mut keep: Vec<RawFd>, alone: bool) -> PyResult<()> {
        keep.sort_unstable();
        self.0.enter(&keep, alone, close_others).map_err(exception)
    }
}

fn exception(error: FenceError) -> PyErr {
    match error {
        FenceError::System(_, _) => PyOSError::new_err(error.to_string()),
        FenceError::Landlock(_) | FenceError::Seccomp(_) | FenceError::Compile(_) => {
            PyRuntimeError::new_err(error.to_string())
        }
    }
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    #[expect(unsafe_code, reason = "the descriptor table could be unshared, which other threads rely on")]
    // SAFETY: the crate asks for name spaces only, never for `UnshareFlags::FILES`.
    unsafe {
        Ok(rustix::thread::unshare_unsafe(flags)?)
    }
}

/// Has all mounts at and below `path` only be read.
fn make_fixed(path: &Path) -> io::Result<()> {
    const ONLY_READ: u64 = 1; // MOUNT_ATTR_RDONLY
    const NO_SET_USER: u64 = 2; // MOUNT_ATTR_NOSUID
    // `struct mount_attr`: what to set and to clear, how it spreads, a name space's descriptor.
    let attributes = [ONLY_READ | NO_SET_USER, 0, 0, 0];
    let path = CString::new(path.as_os_str().as_bytes())?;
    #[expect(unsafe_code, reason = "a call that no crate has yet")]
    // SAFETY: the path and the attributes live until the call returns, and the size is theirs.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of_val(&attributes),
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes all descriptors but those in `keep`, which is sorted.
fn close_others(keep: &[RawFd]) -> io::Result<()> {
    let mut first = 0;
    for &fd in keep {
        if fd > first {
            close_range(first, fd - 1)?;
        }
        first = fd.saturating_add(1).max(first);
    }
    close_range(first, RawFd::MAX)
}

/// Descriptors above it are never made by a process that forks programs.
const HIGHEST: RawFd = 4096;

fn close_range(first: RawFd, last: RawFd) -> io::Result<()> {
    #[expect(unsafe_code, reason = "descriptors that this process has from the one that forked it")]
    // SAFETY: the child runs only the program from here on; what owned them is never dropped.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if closed == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if !matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) {
        return Err(error);
    }
    // Before Linux 5.9, and in containers of that age. The process that forks has few.
    for fd in first..=last.min(HIGHEST) {
        #[expect(unsafe_code, reason = "as above, one by one")]
        // SAFETY: as above; a number that is not open is refused.
        let _ = unsafe { libc::close(fd) };
    }
    Ok(())
}
