//! Values of calls that another process wrote (`columns`), some rows of which are to be written
//! again.
//!
//! The bytes are not trusted: reading them never panics, never reads past an end, and never takes
//! more memory than a few times their size. Malformed values are refused on arrival.

use crate::byte_reader::ByteReader;
use crate::columns::{ASCII, CONSTANT, ColumnsWriter, LATIN1, MIXED, MODULES, PICKLED, PIECES};
use crate::sent_constants::SentConstants;
use crate::text::{RawText, TextKind};

/// Depth of nested pieces: a call has a piece for each batch of its samples, and such a piece one
/// for each addition to a stream.
const PIECES_DEEP: u8 = 2;

/// The values of some samples, in the encoded form.
pub struct EncodedValues<'a> {
    rows: usize,
    width: usize,
    parts: Vec<(Vec<usize>, Part<'a>)>,
}

enum Part<'a> {
    Texts(Vec<RawText<'a>>),
    /// The pickle and the index in it of each row, by the number of the pickle.
    Pickled {
        pickles: Vec<&'a [u8]>,
        rows: Vec<(usize, usize)>,
    },
    Constant(u64, &'a [u8]),
    Modules(Vec<&'a str>),
    Pieces(Vec<EncodedValues<'a>>),
}

impl<'a> EncodedValues<'a> {
    /// Reads the values of `rows` samples; `None` if they are malformed.
    #[must_use]
    pub fn read(bytes: &'a [u8], rows: usize) -> Option<Self> {
        let mut reader = ByteReader(bytes);
        let values = Self::read_from(&mut reader, PIECES_DEEP)?;
        (reader.is_empty() && values.rows == rows).then_some(values)
    }

    fn read_from(reader: &mut ByteReader<'a>, deep: u8) -> Option<Self> {
        let (rows, width, count) = (reader.u32()? as usize, usize::from(reader.u16()?), reader.u16()?);
        let mut parts = Vec::new();
        for _ in 0..count {
            let (tag, _, positions, _) = (reader.u8()?, reader.u8()?, reader.u16()?, reader.u32()?);
            let length = usize::try_from(reader.u64()?).ok()?;
            let positions = (0..positions).map(|_| reader.u16().map(usize::from)).collect::<Option<Vec<_>>>()?;
            if positions.iter().any(|position| *position >= width) {
                return None;
            }
            let mut body = ByteReader(reader.bytes(length)?);
            let alone = tag == PIECES && deep > 0 && count == 1 && positions.is_empty();
            let part = match tag {
                ASCII | LATIN1 | MIXED if positions.len() == 1 => texts(&mut body, tag, rows)?,
                PICKLED => pickled(&mut body, rows)?,
                CONSTANT => Part::Constant(body.u64()?, body.0),
                MODULES if positions.is_empty() => modules(body.0)?,
                PIECES if alone => pieces(&mut body, rows, width, deep - 1)?,
                _ => return None,
            };
            parts.push((positions, part));
        }
        Some(Self { rows, width, parts })
    }

    /// Writes the values of these rows, in this order; missing rows are left out.
    pub fn encode(&self, rows: &[u32], sent: &mut SentConstants, out: &mut Vec<u8>) {
        let rows: Vec<usize> = rows.iter().map(|row| *row as usize).filter(|row| *row < self.rows).collect();
        self.write(&rows, sent, out);
    }

    /// Returns whether the rows share constant values.
    #[must_use]
    pub fn has_constants(&self) -> bool {
        self.parts.iter().any(|(_, part)| match part {
            Part::Constant(..) => true,
            Part::Pieces(pieces) => pieces.iter().any(Self::has_constants),
            Part::Texts(_) | Part::Pickled { .. } | Part::Modules(_) => false,
        })
    }

    /// Calls `each` with the modules that unpickling the values imports.
    pub fn modules(&self, each: &mut dyn FnMut(&str)) {
        for (_, part) in &self.parts {
            match part {
                Part::Modules(names) => names.iter().for_each(|name| each(name)),
                Part::Pieces(pieces) => pieces.iter().for_each(|piece| piece.modules(each)),
                Part::Texts(_) | Part::Pickled { .. } | Part::Constant(..) => {}
            }
        }
    }

    fn write(&self, rows: &[usize], sent: &mut SentConstants, out: &mut Vec<u8>) {
        let mut writer = ColumnsWriter::new(out, rows.len(), self.width);
        for (positions, part) in &self.parts {
            match part {
                Part::Texts(texts) => writer.text(positions[0], |row| texts[rows[row]]),
                Part::Pickled { pickles, rows: places } => {
                    writer.pickled(positions, |row| places[rows[row]], |block| pickles[block]);
                }
                Part::Constant(number, pickle) => writer.constant(positions, *number, pickle, sent),
                Part::Modules(names) => writer.modules(names.iter().copied()),
                Part::Pieces(pieces) => {
                    let mut of_piece: Vec<(usize, Vec<usize>)> = Vec::new();
                    for row in rows {
                        let (number, row) = place(pieces, *row);
                        match of_piece.last_mut() {
                            Some((last, rows)) if *last == number => rows.push(row),
                            _ => of_piece.push((number, vec![row])),
                        }
                    }
                    let each = of_piece.iter().filter_map(|(number, rows)| Some((pieces.get(*number)?, rows)));
                    writer.pieces(each, |(piece, rows), out| piece.write(rows, sent, out));
                }
            }
        }
    }
}

/// Returns the piece of a row, and its number there.
fn place(pieces: &[EncodedValues<'_>], mut row: usize) -> (usize, usize) {
    for (number, piece) in pieces.iter().enumerate() {
        if row < piece.rows {
            return (number, row);
        }
        row -= piece.rows;
    }
    (pieces.len(), 0)
}

/// The body of a column of texts.
fn texts<'a>(body: &mut ByteReader<'a>, tag: u8, rows: usize) -> Option<Part<'a>> {
    let kinds = if tag == MIXED { Some(body.bytes(rows)?) } else { None };
    // Checked before any memory is allocated for this many rows.
    let mut ends = ByteReader(body.bytes(rows.checked_mul(8)?)?);
    let (mut texts, mut start) = (Vec::with_capacity(rows), 0);
    for row in 0..rows {
        let end = usize::try_from(ends.u64()?).ok()?;
        let kind = match kinds.map_or(tag - ASCII, |kinds| kinds[row]) {
            0 => TextKind::Ascii,
            1 => TextKind::Latin1,
            2 if kinds.is_some() => TextKind::Utf16,
            4 if kinds.is_some() => TextKind::Utf32,
            _ => return None,
        };
        texts.push(RawText { kind, bytes: body.0.get(start..end)? });
        start = end;
    }
    (start == body.0.len()).then_some(Part::Texts(texts))
}

fn modules(body: &[u8]) -> Option<Part<'_>> {
    let names = std::str::from_utf8(body).ok()?.strip_suffix('\0')?;
    Some(Part::Modules(names.split('\0').collect()))
}

fn pickled<'a>(body: &mut ByteReader<'a>, rows: usize) -> Option<Part<'a>> {
    let blocks = body.u32()?;
    let (mut pickles, mut places) = (Vec::new(), Vec::new());
    for block in 0..blocks as usize {
        let (length, count) = (usize::try_from(body.u64()?).ok()?, body.u32()? as usize);
        let mut indexes = ByteReader(body.bytes(count.checked_mul(4)?)?);
        while let Some(index) = indexes.u32() {
            places.push((block, index as usize));
        }
        pickles.push(body.bytes(length)?);
    }
    (places.len() == rows && body.is_empty()).then_some(Part::Pickled { pickles, rows: places })
}

fn pieces<'a>(body: &mut ByteReader<'a>, rows: usize, width: usize, deep: u8) -> Option<Part<'a>> {
    let count = body.u32()?;
    let mut pieces = Vec::new();
    for _ in 0..count {
        let length = usize::try_from(body.u64()?).ok()?;
        let mut bytes = ByteReader(body.bytes(length)?);
        let piece = EncodedValues::read_from(&mut bytes, deep)?;
        if !bytes.is_empty() || piece.width != width {
            return None;
        }
        pieces.push(piece);
    }
    let all = pieces.iter().try_fold(0_usize, |all, piece| all.checked_add(piece.rows))?;
    (all == rows && body.is_empty()).then_some(Part::Pieces(pieces))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Texts of three kinds, pickles in blocks of three rows, and a constant.
    fn write(rows: &[usize], out: &mut Vec<u8>) {
        let text = |row: usize| match row % 3 {
            0 => RawText { kind: TextKind::Ascii, bytes: &b"abcdefgh"[..row % 8] },
            1 => RawText { kind: TextKind::Latin1, bytes: &[0xe4, 0xf6] },
            _ => RawText { kind: TextKind::Utf32, bytes: &[1, 0, 0, 0] },
        };
        let pickles: Vec<Vec<u8>> = (0..20).map(|block| vec![block; usize::from(block)]).collect();
        let mut writer = ColumnsWriter::new(out, rows.len(), 4);
        writer.modules(["numpy", "torch"].into_iter());
        writer.text(1, |row| text(rows[row]));
        writer.text(3, |row| RawText { kind: TextKind::Ascii, bytes: &b"abcdefgh"[..rows[row] % 5] });
        writer.pickled(&[0], |row| (rows[row] / 3, rows[row] % 3), |block| &pickles[block]);
        writer.constant(&[2], 7, b"same", &mut SentConstants::none());
    }

    #[test]
    fn some_rows_are_written_as_if_there_had_been_no_others() {
        let all: Vec<usize> = (0..40).collect();
        let mut bytes = Vec::new();
        write(&all, &mut bytes);
        let values = EncodedValues::read(&bytes, 40).unwrap();
        for some in [vec![], vec![7], vec![0, 3, 39], (5..30).collect()] {
            let (mut wanted, mut got) = (Vec::new(), Vec::new());
            write(&some, &mut wanted);
            values.encode(
                &some.iter().map(|row| *row as u32).collect::<Vec<_>>(),
                &mut SentConstants::none(),
                &mut got,
            );
            assert_eq!(got, wanted);
        }
    }

    #[test]
    fn rows_of_several_pieces_stay_in_their_pieces() {
        let whole = |parts: &[Vec<usize>]| {
            let mut out = Vec::new();
            let rows = parts.iter().map(Vec::len).sum();
            ColumnsWriter::new(&mut out, rows, 4).pieces(parts.iter(), |rows, out| write(rows, out));
            out
        };
        let bytes = whole(&[vec![1, 2, 3], vec![9], vec![30, 31]]);
        let values = EncodedValues::read(&bytes, 6).unwrap();
        let mut got = Vec::new();
        values.encode(&[1, 2, 4, 5], &mut SentConstants::none(), &mut got);
        assert_eq!(got, whole(&[vec![2, 3], vec![30, 31]]));
    }

    /// Those of streams whose samples came in several additions.
    #[test]
    fn pieces_of_pieces_are_read_and_deeper_ones_refused() {
        let nest = |parts: &[Vec<u8>], rows: usize| {
            let mut out = Vec::new();
            ColumnsWriter::new(&mut out, rows, 4).pieces(parts.iter(), |part, out| out.extend_from_slice(part));
            out
        };
        let block = |rows: &[usize]| {
            let mut out = Vec::new();
            write(rows, &mut out);
            out
        };
        let stream = nest(&[block(&[1, 2]), block(&[9])], 3);
        let call = nest(&[block(&[30]), stream.clone()], 4);
        let values = EncodedValues::read(&call, 4).unwrap();
        let mut got = Vec::new();
        values.encode(&[0, 2, 3], &mut SentConstants::none(), &mut got);
        assert_eq!(got, nest(&[block(&[30]), nest(&[block(&[2]), block(&[9])], 2)], 3));
        assert!(EncodedValues::read(&nest(&[call], 4), 4).is_none());
    }

    #[test]
    fn a_constant_is_written_again_once_its_reader_has_dropped_it() {
        let mut sent = SentConstants::kept(2);
        let mut has_pickle = |number: u64| {
            let mut out = Vec::new();
            ColumnsWriter::new(&mut out, 1, 1).constant(&[0], number, b"pickle", &mut sent);
            out.ends_with(b"pickle")
        };
        assert_eq!([1, 2, 1, 3, 1, 2].map(&mut has_pickle), [true, true, false, true, false, true]);
    }

    #[test]
    fn modules_of_all_pieces_are_given() {
        let mut bytes = Vec::new();
        ColumnsWriter::new(&mut bytes, 3, 4).pieces([vec![1, 2], vec![9]].iter(), |rows, out| write(rows, out));
        let mut names = Vec::new();
        EncodedValues::read(&bytes, 3).unwrap().modules(&mut |name| names.push(name.to_owned()));
        assert_eq!(names, ["numpy", "torch", "numpy", "torch"]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), rows in 0..9_usize) {
            let _ = EncodedValues::read(&bytes, rows);
            bytes.splice(0..0, [rows as u8, 0, 0, 0, 2, 0, 1, 0]);
            let _ = EncodedValues::read(&bytes, rows);
        }

        #[test]
        fn a_damaged_block_is_refused_or_written_without_a_panic(at in 0..2000_usize, byte: u8, rows in prop::collection::vec(0..50_u32, 0..9)) {
            let mut bytes = Vec::new();
            write(&(0..40).collect::<Vec<_>>(), &mut bytes);
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Some(values) = EncodedValues::read(&bytes, 40) {
                values.encode(&rows, &mut SentConstants::none(), &mut Vec::new());
            }
        }
    }
}
