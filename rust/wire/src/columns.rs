//! Writes the values of calls as `python/guerdon/_worker/columns.py` reads them.
//!
//! Text is copied, never transcoded: a worker gets exactly the caller's characters, lone surrogates
//! too. Writing takes no lock and calls no code of the caller except the closures passed to it.

// The format, all numbers little-endian.
//
// ```text
// u32 rows   u16 width   u16 parts
// per part:  u8 tag  u8 0  u16 n  u32 0  u64 length of the body
//            n × u16 position among a call's values   body
// ```
//
// A row is a sample; a call has `width` values, each given by one part. The bodies, by tag:
//
// - 1 ASCII, 2 Latin-1: `rows × u64` end of each text, counted from the first text; then the texts,
//   one byte a character. One position.
// - 3 mixed text: `rows × u8` kind, `rows × u64` end, then the texts, each in the form of its
//   Python string. One position.
// - 4 pickled: `u32 blocks`; per block `u64 length of the pickle, u32 n, n × u32 index, pickle`.
//   The pickle is a list with one list per position, of which the indices choose, in order of the
//   rows. A block of one row is unpickled in the call on it; a block of several holds plain values
//   only, whose unpickling runs no code.
// - 5 constant: `u64 number`, and the pickle of a list with a list of one value per position, the
//   same for every row; without the pickle where the reader has it of an earlier frame.
// - 6 pieces: `u32 pieces`; per piece `u64 length`, values as described here, of the next rows. No
//   position: it is the only part.
// - 7 modules: the names of modules that unpickling the values imports, each ended by a NUL. No
//   position: it is the first part.

use crate::sent_constants::SentConstants;
use crate::text::{RawText, TextKind};

/// Writes the values of some samples.
pub struct ColumnsWriter<'out> {
    out: &'out mut Vec<u8>,
    rows: usize,
    parts_at: usize,
    parts: u16,
}

pub(crate) const ASCII: u8 = 1;
pub(crate) const LATIN1: u8 = 2;
pub(crate) const MIXED: u8 = 3;
pub(crate) const PICKLED: u8 = 4;
pub(crate) const CONSTANT: u8 = 5;
pub(crate) const PIECES: u8 = 6;
pub(crate) const MODULES: u8 = 7;

impl<'out> ColumnsWriter<'out> {
    /// Starts the values of `rows` samples, `width` a call.
    pub fn new(out: &'out mut Vec<u8>, rows: usize, width: usize) -> Self {
        out.extend_from_slice(&small(rows).to_le_bytes());
        out.extend_from_slice(&tiny(width).to_le_bytes());
        let parts_at = out.len();
        out.extend_from_slice(&[0; 2]);
        Self { out, rows, parts_at, parts: 0 }
    }

    /// The modules that unpickling the values imports; before all columns.
    pub fn modules<'a>(&mut self, names: impl Iterator<Item = &'a str> + Clone) {
        if names.clone().next().is_some() {
            self.part(MODULES, &[], |out| {
                for name in names {
                    out.extend_from_slice(name.as_bytes());
                    out.push(0);
                }
            });
        }
    }

    /// A column of texts: `text` gives that of each row.
    pub fn text<'a>(&mut self, position: usize, text: impl Fn(usize) -> RawText<'a>) {
        let rows = self.rows;
        let widest = (0..rows).map(|row| text(row).kind).max().unwrap_or(TextKind::Ascii);
        let tag = match widest {
            TextKind::Ascii => ASCII,
            TextKind::Latin1 => LATIN1,
            TextKind::Utf16 | TextKind::Utf32 => MIXED,
        };
        self.part(tag, &[position], |out| {
            if tag == MIXED {
                out.extend((0..rows).map(|row| text(row).kind as u8));
            }
            let mut end = 0;
            for row in 0..rows {
                end += text(row).bytes.len() as u64;
                out.extend_from_slice(&end.to_le_bytes());
            }
            for row in 0..rows {
                out.extend_from_slice(text(row).bytes);
            }
        });
    }

    /// Columns that were pickled together in blocks of samples: `place` gives the block of each row
    /// and its index within, `blob` the pickle of a block.
    pub fn pickled<'a>(
        &mut self,
        positions: &[usize],
        place: impl Fn(usize) -> (usize, usize),
        blob: impl Fn(usize) -> &'a [u8],
    ) {
        let rows = self.rows;
        self.part(PICKLED, positions, |out| {
            let blocks_at = out.len();
            out.extend_from_slice(&[0; 4]);
            let (mut blocks, mut row) = (0u32, 0);
            while row < rows {
                let (block, _) = place(row);
                let count = (row..rows).take_while(|row| place(*row).0 == block).count();
                let pickle = blob(block);
                out.extend_from_slice(&(pickle.len() as u64).to_le_bytes());
                out.extend_from_slice(&small(count).to_le_bytes());
                for row in row..row + count {
                    out.extend_from_slice(&small(place(row).1).to_le_bytes());
                }
                out.extend_from_slice(pickle);
                blocks += 1;
                row += count;
            }
            out[blocks_at..blocks_at + 4].copy_from_slice(&blocks.to_le_bytes());
        });
    }

    /// Values that are the same for every row, by the number of their pickle, which is left out
    /// where the reader has it.
    pub fn constant(&mut self, positions: &[usize], number: u64, pickle: &[u8], sent: &mut SentConstants) {
        let is_known = sent.note(number);
        self.part(CONSTANT, positions, |out| {
            out.extend_from_slice(&number.to_le_bytes());
            if !is_known {
                out.extend_from_slice(pickle);
            }
        });
    }

    /// All values, piece after piece of the rows: `write` writes those of each piece.
    pub fn pieces<P>(&mut self, pieces: impl Iterator<Item = P>, mut write: impl FnMut(P, &mut Vec<u8>)) {
        self.part(PIECES, &[], |out| {
            let count_at = out.len();
            out.extend_from_slice(&[0; 4]);
            let mut count = 0_usize;
            for piece in pieces {
                let length_at = out.len();
                out.extend_from_slice(&[0; 8]);
                write(piece, out);
                let length = (out.len() - length_at - 8) as u64;
                out[length_at..length_at + 8].copy_from_slice(&length.to_le_bytes());
                count += 1;
            }
            out[count_at..count_at + 4].copy_from_slice(&small(count).to_le_bytes());
        });
    }

    fn part(&mut self, tag: u8, positions: &[usize], body: impl FnOnce(&mut Vec<u8>)) {
        let out = &mut *self.out;
        out.extend_from_slice(&[tag, 0]);
        out.extend_from_slice(&tiny(positions.len()).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        let length_at = out.len();
        out.extend_from_slice(&[0; 8]);
        for position in positions {
            out.extend_from_slice(&tiny(*position).to_le_bytes());
        }
        let start = out.len();
        body(out);
        let length = (out.len() - start) as u64;
        out[length_at..length_at + 8].copy_from_slice(&length.to_le_bytes());
        self.parts += 1;
        out[self.parts_at..self.parts_at + 2].copy_from_slice(&self.parts.to_le_bytes());
    }
}

/// Counts of samples and of values are far below these bounds; a batch or function beyond them
/// would be refused by its worker.
fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn tiny(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}
