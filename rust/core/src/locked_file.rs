//! A file of numbers that processes of a host share, used under a lock.
//!
//! - The lock is the kernel's, ends with its process, and is held for microseconds.
//! - A file that was removed is made again. An incomplete write is detected by its checksum.
//! - Folder and file are private to this user; links are not followed.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// Number of attempts to take the lock before the caller has to try again.
const LOCK_TRIES: u32 = 40;

/// See the module.
#[derive(Debug)]
pub(crate) struct LockedFile {
    path: PathBuf,
    /// Opened at the first use, and again after a removal.
    file: Option<File>,
}

impl LockedFile {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the file was used.
    pub(crate) const fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Locks the file, until `unlock`; `None` if another process holds the lock. If `check` is set,
    /// a removed file is made again.
    pub(crate) fn lock(&mut self, check: bool) -> io::Result<Option<File>> {
        let exists = |file: &File| !check || file.metadata().is_ok_and(|found| found.nlink() > 0);
        let file = match self.file.take().filter(exists) {
            Some(file) => file,
            None => open(&self.path)?,
        };
        if try_lock(&file)? {
            return Ok(Some(file));
        }
        self.file = Some(file);
        Ok(None)
    }

    pub(crate) fn unlock(&mut self, file: File) -> io::Result<()> {
        let unlocked = flock(&file, FlockOperation::Unlock);
        self.file = Some(file);
        Ok(unlocked?)
    }
}

/// Takes the lock if it is free, or becomes free within microseconds.
fn try_lock(file: &File) -> io::Result<bool> {
    for _ in 0..LOCK_TRIES {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// Opens or makes the file.
fn open(path: &Path) -> io::Result<File> {
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if std::fs::symlink_metadata(folder)?.uid() != rustix::process::geteuid().as_raw() {
        let problem = format!("{} belongs to another user", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags).open(path)
}

/// Returns the numbers in the file, up to `count`.
pub(crate) fn words(file: &File, count: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; count * 8];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes[..filled].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// Returns a number for this boot of the machine, because the clocks start again at a boot; 0 if it
/// can't be read.
pub(crate) fn boot() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}
