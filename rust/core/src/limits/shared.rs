//! A book in a file, for all processes of a host that name one key: a lock around each use, positioned reads and writes in between.
//!
//! ```text
//! u64 magic   u64 boot   u64 sum   12 × u64 the book   u64 holders   per holder 6 × u64
//! ```
//!
//! - S-1  The lock is the kernel's and ends with whoever has it; it is held for some microseconds, and only who leaves for good waits for it,
//!   a little: his share would be taken until his process ends.
//! - S-2  What a dead process had under way is free again: holders are looked at when there is nothing left to take.
//! - S-3  A file of another boot or another version starts anew; one that was removed is made again.
//! - S-4  Whatever stands in the file, reading it does not fail. One whose sum is not that of its numbers, or whose times no clock of this boot can
//!   have shown, starts anew too, instead of having everyone wait for what nobody ever set.
//! - S-5  The file is this user's own: its folder and the file are made for nobody else, links are not followed.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::book::{self, Book};
use super::holder::{self, Holder};

/// "GUERDON" and the version of the layout.
const MAGIC: u64 = 0x4755_4552_444F_4E03;
const HEAD: usize = 3 + book::WORDS + 1;
/// Engines that can share a key.
const MOST: usize = 1024;
/// How often an occupied lock is tried before its user is told to come again.
const TRIES: u32 = 40;
/// How often, and how soon again, who leaves tries.
const LEAVES: u32 = 200;
const LEAVE_AGAIN: Duration = Duration::from_millis(1);
/// Between two looks at whether the file was removed.
const FIND_NS: u64 = 100_000_000;
/// Between two looks at which holders are alive.
const LOOK_NS: u64 = 200_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Shared {
    path: PathBuf,
    /// Opened with the first use, and again when it was removed (S-3).
    file: Option<File>,
    boot: u64,
    me: Holder,
    /// Where this one stood the last time.
    place: usize,
    looked_ns: Option<u64>,
    found_ns: u64,
    /// Holders in the file, the last time.
    count: usize,
}

/// What stands in the file, under the lock.
pub(super) struct Open {
    pub book: Book,
    holders: Vec<Holder>,
    me: usize,
    namespace: u64,
    /// It is time to look who is alive; someone did.
    look: bool,
    looked: bool,
    /// It stands in the file as it was read.
    written: bool,
}

impl Open {
    /// Calls under way with the others.
    pub(super) fn elsewhere(&self) -> usize {
        let others = self.holders.iter().enumerate().filter(|(place, _)| *place != self.me);
        let all = others.map(|(_, holder)| holder.in_use).fold(0, u64::saturating_add);
        usize::try_from(all).unwrap_or(usize::MAX)
    }

    /// Writes down how many calls this engine has under way.
    pub(super) fn mine(&mut self, in_use: usize) {
        self.holders[self.me].in_use = in_use as u64;
    }

    /// Frees what dead processes had under way (S-2), if it is time to look again; whether anything was freed.
    pub(super) fn free_dead(&mut self, now_ns: u64) -> bool {
        if !self.look {
            return false;
        }
        (self.look, self.looked) = (false, true);
        let mut freed = false;
        for (place, holder) in self.holders.iter_mut().enumerate() {
            if place != self.me && !holder.is_nobody() && !holder.is_alive(self.namespace, now_ns) {
                freed |= holder.in_use > 0;
                *holder = Holder::default();
            }
        }
        freed
    }
}

impl Shared {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            file: None,
            boot: boot(),
            me: Holder::new(),
            place: 0,
            looked_ns: None,
            found_ns: 0,
            count: 0,
        }
    }

    /// Does something with the book under the lock; `None` if someone else has that just now (S-1).
    pub(super) fn with<R>(&mut self, now_ns: u64, work: impl FnOnce(&mut Open) -> R) -> io::Result<Option<R>> {
        let file = match self.file.take() {
            Some(file) if self.is_there(&file, now_ns)? => file,
            _ => open(&self.path)?,
        };
        if !lock(&file)? {
            self.file = Some(file);
            return Ok(None);
        }
        let done = self.locked(&file, now_ns, work);
        let unlocked = flock(&file, FlockOperation::Unlock);
        self.file = Some(file);
        unlocked?;
        done.map(Some)
    }

    /// Whether the file still has its name; looked at now and then.
    fn is_there(&mut self, file: &File, now_ns: u64) -> io::Result<bool> {
        if now_ns.saturating_sub(self.found_ns) < FIND_NS {
            return Ok(true);
        }
        self.found_ns = now_ns;
        Ok(file.metadata()?.nlink() > 0)
    }

    /// Gives up its place in the file. Where that fails, the place is free when the process has ended.
    pub(super) fn leave(&mut self) {
        self.leave_after(|| std::thread::sleep(LEAVE_AGAIN));
    }

    /// `leave`, with something else to do until the next try.
    pub(super) fn leave_after(&mut self, mut wait: impl FnMut()) {
        for _ in 0..LEAVES {
            if self.file.is_none()
                || !matches!(self.with(u64::MAX, |open| open.holders[open.me] = Holder::default()), Ok(None))
            {
                return;
            }
            wait();
        }
    }

    /// Stands in the file as another process does.
    #[cfg(test)]
    pub(super) fn pretend(&mut self, pid: u32) {
        self.me = Holder::of(pid);
    }

    fn locked<R>(&mut self, file: &File, now_ns: u64, work: impl FnOnce(&mut Open) -> R) -> io::Result<R> {
        let mut open = self.read(file, now_ns)?;
        let (book, holders) = (open.book.clone(), open.holders.clone());
        let done = work(&mut open);
        if open.looked {
            self.looked_ns = Some(now_ns);
        }
        if open.written && open.book == book && open.holders == holders {
            return Ok(done);
        }
        let holder = &mut open.holders[open.me];
        if !holder.is_nobody() {
            holder.seen_ns = now_ns;
        }
        let numbers: Vec<u64> = open
            .book
            .to_words()
            .into_iter()
            .chain([open.holders.len() as u64])
            .chain(open.holders.iter().flat_map(|holder| holder.to_words()))
            .collect();
        let head = [MAGIC, self.boot, sum(&numbers)];
        let bytes: Vec<u8> = head.into_iter().chain(numbers).flat_map(u64::to_le_bytes).collect();
        file.write_all_at(&bytes, 0)?;
        Ok(done)
    }

    fn read(&mut self, file: &File, now_ns: u64) -> io::Result<Open> {
        // As many holders as there were the last time, so that one read does.
        let mut all = words(file, 0, HEAD + self.count * holder::WORDS)?;
        let (mut book, mut holders) = (Book::default(), Vec::new());
        let count = all.get(HEAD - 1).map_or(0, |count| usize::try_from(*count).unwrap_or(MOST).min(MOST));
        if count > self.count {
            all = words(file, 0, HEAD + count * holder::WORDS)?;
        }
        self.count = count;
        all.truncate(HEAD + count * holder::WORDS);
        if let Some(([MAGIC, boot, wanted], numbers)) = all.split_first_chunk::<3>()
            && *boot == self.boot
            && *wanted == sum(numbers)
            && let Some((known, [_, standing @ ..])) = numbers.split_first_chunk::<{ book::WORDS }>()
            && let found = Book::from_words(*known)
            && found.fits(now_ns)
        {
            book = found;
            book.mend(now_ns);
            let (standing, _) = standing.as_chunks::<{ holder::WORDS }>();
            holders = standing.iter().map(|words| Holder::from_words(*words)).collect();
        }
        let look = self.looked_ns.is_none_or(|looked_ns| now_ns.saturating_sub(looked_ns) >= LOOK_NS);
        let (me, namespace) = (self.place, self.me.namespace);
        let mut open = Open { book, holders, me, namespace, look, looked: false, written: true };
        if !open.holders.get(self.place).is_some_and(|holder| holder.is(&self.me)) {
            open.me = self.sit_down(&mut open, now_ns)?;
            self.place = open.me;
            open.written = false;
        }
        Ok(open)
    }

    /// Finds a place among the holders.
    fn sit_down(&self, open: &mut Open, now_ns: u64) -> io::Result<usize> {
        if open.holders.len() >= MOST && !open.holders.iter().any(Holder::is_nobody) {
            open.me = MOST; // nobody yet: all are looked at
            open.look = true;
            open.free_dead(now_ns);
        }
        let me = self.me;
        if let Some(place) = open.holders.iter().position(Holder::is_nobody) {
            open.holders[place] = me;
            return Ok(place);
        }
        if open.holders.len() >= MOST {
            return Err(io::Error::other(format!("{MOST} engines share {}", self.path.display())));
        }
        open.holders.push(me);
        Ok(open.holders.len() - 1)
    }
}

/// Takes the lock if it is free, or gets free within microseconds (S-1).
fn lock(file: &File) -> io::Result<bool> {
    for _ in 0..TRIES {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// Tells a file that was written as a whole from one that was not, or not by us.
fn sum(numbers: &[u64]) -> u64 {
    let mix = |sum: u64, number: &u64| (sum ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    numbers.iter().fold(numbers.len() as u64, mix)
}

/// As many numbers as there are, up to `count`.
fn words(file: &File, offset: usize, count: usize) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; count * 8];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], (offset + filled) as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes[..filled].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// Opens or makes the file (S-5).
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

/// Tells boots of the machine apart, whose clocks begin anew; 0 where that can't be had.
fn boot() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}
