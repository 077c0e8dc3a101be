//! A value and the leases of the engines that share it, as the numbers of a `LockedFile`: `u64`
//! magic, boot, checksum, the value, number of leases, the leases.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::lease::Lease;
use crate::locked_file::words;
use crate::words::Words;

/// The most engines that can share a file.
pub(crate) const MOST_ENGINES: usize = 1024;
/// Magic, boot, checksum.
const HEAD: usize = 3;

/// The contents of a file.
pub(crate) struct Contents<T> {
    /// When it was written, the boot of the machine.
    pub boot: u64,
    pub value: T,
    pub leases: Vec<Lease>,
}

impl<T: Words> Contents<T> {
    /// Reads a file; `None` if it is of another version or was not written completely. `count` is
    /// the number of leases at the last read, so that one read is usually enough.
    pub(crate) fn read(file: &File, magic: u64, count: &mut usize) -> io::Result<Option<Self>> {
        let length = |leases: usize| HEAD + T::COUNT + 1 + leases * Lease::COUNT;
        let mut all = words(file, length(*count))?;
        let Some(stored) = all.get(length(0) - 1) else { return Ok(None) };
        let stored = usize::try_from(*stored).unwrap_or(MOST_ENGINES).min(MOST_ENGINES);
        if stored > *count {
            all = words(file, length(stored))?;
        }
        *count = stored;
        all.truncate(length(stored));
        let Some((head, numbers)) = all.split_first_chunk::<HEAD>() else { return Ok(None) };
        if head[0] != magic || head[2] != checksum(numbers) {
            return Ok(None);
        }
        let mut numbers = numbers.iter().copied();
        let value = T::take(&mut numbers);
        let leases = numbers.skip(1).collect::<Vec<u64>>();
        let leases = leases.chunks_exact(Lease::COUNT).map(|lease| Lease::take(&mut lease.iter().copied()));
        Ok(Some(Self { boot: head[1], value, leases: leases.collect() }))
    }

    pub(crate) fn write(&self, file: &File, magic: u64) -> io::Result<()> {
        let mut numbers = Vec::with_capacity(T::COUNT + 1 + self.leases.len() * Lease::COUNT);
        self.value.put(&mut numbers);
        numbers.push(self.leases.len() as u64);
        self.leases.iter().for_each(|lease| lease.put(&mut numbers));
        let head = [magic, self.boot, checksum(&numbers)];
        let bytes: Vec<u8> = head.iter().chain(&numbers).flat_map(|number| number.to_le_bytes()).collect();
        file.write_all_at(&bytes, 0)
    }
}

/// Computes the checksum by which incomplete and foreign files are detected.
fn checksum(numbers: &[u64]) -> u64 {
    let mix = |sum: u64, number: &u64| (sum ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    numbers.iter().fold(numbers.len() as u64, mix)
}
