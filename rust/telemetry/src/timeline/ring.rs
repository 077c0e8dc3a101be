//! The file: slots of one size, overwritten one after the other.
//!
//! - The file is a sequence of packets at each moment: the free rest of a slot is one packet of
//!   padding. A slot describes the tracks that it uses, and depends on no other slot.
//! - A segment becomes visible at once: it is written after the head of the padding, which its own
//!   head replaces last. Heads are 16 bytes at multiples of 16, so that no page boundary splits
//!   them, and a kill can't leave half a head.
//! - A file that another process or dispatcher writes is never changed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::timeline::open_file::open_file;
use crate::timeline::packets::PACKET_TAG;

/// Size of the head of padding. The size of a segment is a multiple of it.
const HEAD: usize = 16;
pub(crate) const SLOTS: usize = 16;
/// The size of a slot is a multiple of it, so that a reader finds the next slot after damage.
pub(crate) const GRAIN: usize = 1 << 16;
/// Least size of a slot, with room for the largest event.
const LEAST_GRAINS: usize = if cfg!(test) { 1 } else { 4 };
/// Tag of the content of padding: a field that Perfetto's packets lack, so that readers skip it.
const PADDING_TAG: [u8; 2] = [0xfa, 0x7f];
/// The most dispatchers that write files of one name at a time.
const MOST_NAMES: usize = 1000;

pub(crate) struct Ring {
    file: File,
    slot_bytes: usize,
    slot: usize,
    /// Position of the next segment in the slot.
    at: usize,
    /// Number of slots with content.
    slots_used: usize,
    /// True if there is a provisional segment at `at`.
    provisional: bool,
}

/// Returns the head of a packet of padding that takes `bytes` in all.
fn padding(bytes: usize) -> [u8; 13] {
    let mut head = [0; 13];
    head[0] = PACKET_TAG;
    head[1..6].copy_from_slice(&wide_varint((bytes - 6) as u32));
    head[6..8].copy_from_slice(&PADDING_TAG);
    head[8..13].copy_from_slice(&wide_varint((bytes - 13) as u32));
    head
}

/// Encodes a varint in five bytes, whatever its value, so that the size of a head is fixed.
fn wide_varint(value: u32) -> [u8; 5] {
    std::array::from_fn(|byte| {
        let bits = (value >> (7 * byte as u32)) as u8 & 0x7f;
        if byte < 4 { bits | 0x80 } else { bits }
    })
}

impl Ring {
    /// Makes a file of `bytes`, with another name if a file of this name is being written. Renames
    /// the file of an earlier run to `previous`.
    pub(crate) fn create(path: &Path, bytes: u64) -> io::Result<(Self, PathBuf)> {
        let slot_bytes =
            (usize::try_from(bytes).unwrap_or(usize::MAX) / SLOTS / GRAIN).clamp(LEAST_GRAINS, 1 << 14) * GRAIN;
        let path = free_name(path)?;
        let temporary = with_suffix(&path, &format!("{}.new", std::process::id()));
        let made = Self::make(&temporary, slot_bytes).and_then(|ring| {
            if path.exists() {
                std::fs::rename(&path, with_suffix(&path, "previous"))?;
            }
            std::fs::rename(&temporary, &path)?;
            Ok(ring)
        });
        if made.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        Ok((made?, path))
    }

    fn make(path: &Path, slot_bytes: usize) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // The file is sparse: it takes disk space as it is written.
        file.set_len((SLOTS * slot_bytes) as u64)?;
        for slot in 0..SLOTS {
            file.write_all_at(&padding(slot_bytes), (slot * slot_bytes) as u64)?;
        }
        Ok(Self { file, slot_bytes, slot: 0, at: 0, slots_used: 1, provisional: false })
    }

    pub(crate) const fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Returns whether a segment of `bytes` bytes fits into the slot.
    pub(crate) const fn has_room(&self, bytes: usize) -> bool {
        self.at + bytes + 3 * HEAD <= self.slot_bytes
    }

    /// Begins the next slot, and removes its old content.
    pub(crate) fn next_slot(&mut self) -> io::Result<()> {
        self.remove_provisional()?;
        self.slot = (self.slot + 1) % SLOTS;
        self.slots_used = (self.slots_used + 1).min(SLOTS);
        self.at = 0;
        self.pad(0)
    }

    pub(crate) fn remove_provisional(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.provisional) {
            self.pad(self.at)?;
        }
        Ok(())
    }

    fn pad(&self, at: usize) -> io::Result<()> {
        self.write(&padding(self.slot_bytes - at), at)
    }

    fn write(&self, bytes: &[u8], at: usize) -> io::Result<()> {
        self.file.write_all_at(bytes, (self.slot * self.slot_bytes + at) as u64)
    }

    /// Appends packets. A `provisional` segment is replaced by the next one.
    pub(crate) fn append(&mut self, mut segment: Vec<u8>, provisional: bool) -> io::Result<()> {
        self.remove_provisional()?;
        let room = (segment.len() + HEAD - 1).next_multiple_of(HEAD) - segment.len();
        let room = if room < 13 { room + HEAD } else { room };
        segment.extend_from_slice(&padding(room));
        segment.resize(segment.len() + room - 13, 0);
        let end = self.at + segment.len();
        if end + HEAD > self.slot_bytes {
            return Err(io::Error::other("a segment of the trace is larger than a slot"));
        }
        segment.extend_from_slice(&padding(self.slot_bytes - end));
        self.write(&segment[HEAD..], self.at + HEAD)?;
        self.write(&segment[..HEAD], self.at)?;
        self.provisional = provisional;
        if !provisional {
            self.at = end;
        }
        Ok(())
    }

    /// Removes the part of the file that was never written.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.remove_provisional()?;
        if self.slots_used < SLOTS {
            self.file.set_len((self.slot * self.slot_bytes + self.at) as u64)?;
        }
        Ok(())
    }
}

/// Returns the first of the names `run`, `run-2`, `run-3`… whose file is not being written.
fn free_name(path: &Path) -> io::Result<PathBuf> {
    for number in 1..MOST_NAMES {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let candidate = named(path, &suffix);
        match open_file(&candidate) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(candidate),
            Err(error) => return Err(error),
            Ok(file) => {
                if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                    return Ok(candidate);
                }
            }
        }
    }
    Err(io::Error::other("too many dispatchers write files of this name"))
}

/// Returns `run.pftrace` as `run-2.pftrace`.
fn named(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(suffix);
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Returns `run.pftrace` as `run.previous.pftrace`.
fn with_suffix(path: &Path, word: &str) -> PathBuf {
    named(path, &format!(".{word}"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use guerdon_testkit::TempFolder;
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::timeline::packets::{Packet, Packets, TrackEvent};

    proptest! {
        #[test]
        fn a_wide_varint_is_a_varint(value in any::<u32>()) {
            prop_assert_eq!(prost::decode_length_delimiter(&wide_varint(value)[..]), Ok(value as usize));
        }
    }

    /// Returns the content of all packets that are not padding; panics where the file is not
    /// packets.
    fn packets(path: &Path) -> Vec<u64> {
        let mut packets = Packets { rest: std::fs::read(path).unwrap().into() };
        let read = |packet: Bytes| Packet::decode(packet).expect("a packet breaks off").at_ns;
        let found = packets.by_ref().filter_map(read).collect();
        assert!(packets.rest.is_empty(), "the file breaks off: {} bytes left", packets.rest.len());
        found
    }

    fn segment(number: u64, bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let event = Some(TrackEvent::named(vec![7; bytes]));
        Packet { at_ns: Some(number), event, ..Packet::default() }.put(&mut out);
        out
    }

    #[test]
    fn the_file_is_packets_after_each_write() {
        let folder = TempFolder::create().unwrap();
        let (mut ring, path) = Ring::create(&folder.0.join("run.pftrace"), 1 << 20).unwrap();
        assert!(packets(&path).is_empty());
        let mut written = Vec::new();
        for number in 1..200_u64 {
            let bytes = segment(number, (number as usize * 997) % 20_000);
            if !ring.has_room(bytes.len()) {
                ring.next_slot().unwrap();
                packets(&path);
            }
            ring.append(bytes, false).unwrap();
            written.push(number);
            ring.append(segment(1_000_000 + number, 10), true).unwrap();
            let mut seen = packets(&path);
            seen.sort_unstable();
            // The newest are all there, and among the last only the last.
            assert_eq!(seen.pop(), Some(1_000_000 + number));
            assert!(written.ends_with(&seen), "{seen:?}");
            assert!(number < 50 || seen.len() > 40, "the ring keeps what fits");
        }
        ring.close().unwrap();
        assert!(packets(&path).iter().all(|number| *number < 1_000_000));
    }

    #[test]
    fn a_segment_that_was_not_written_whole_is_not_there() {
        let folder = TempFolder::create().unwrap();
        let (mut ring, path) = Ring::create(&folder.0.join("run.pftrace"), 1 << 20).unwrap();
        ring.append(segment(1, 100), false).unwrap();
        // Writes as if the process had been killed before the head was written.
        ring.write(&segment(2, 3000)[HEAD..], ring.at + HEAD).unwrap();
        assert_eq!(packets(&path), [1]);
    }

    #[test]
    fn names_are_not_shared_and_the_last_file_is_kept() {
        let folder = TempFolder::create().unwrap();
        let path = folder.0.join("run.pftrace");
        let (mut first, at) = Ring::create(&path, 1 << 20).unwrap();
        assert_eq!(at, path);
        let (second, beside) = Ring::create(&path, 1 << 20).unwrap();
        assert_eq!(beside, folder.0.join("run-2.pftrace"));
        first.append(segment(5, 1), false).unwrap();
        first.close().unwrap();
        drop((first, second));
        let (_ring, at) = Ring::create(&path, 1 << 20).unwrap();
        assert_eq!((at, packets(&folder.0.join("run.previous.pftrace"))), (path, vec![5]));
    }
}
