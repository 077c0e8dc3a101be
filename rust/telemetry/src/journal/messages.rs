//! Reads a stream message by message, so that one whose writer died can be told from a damaged one.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::root_as_message;

/// Size of a head: a mark, and the size of the metadata that follow.
const HEAD: u64 = 8;
const MARK: [u8; 4] = [0xff; 4];

/// A complete message.
pub(crate) struct Message {
    head: Vec<u8>,
    pub body: Buffer,
    /// Its end in the stream.
    pub end: u64,
}

impl Message {
    /// Its metadata.
    pub(crate) fn head(&self) -> io::Result<arrow_ipc::Message<'_>> {
        root_as_message(&self.head).map_err(|_| damaged(self.end))
    }
}

/// Content of a stream at a position.
pub(crate) enum Ahead {
    Whole(Message),
    /// The end of the stream.
    End,
    /// An incomplete message.
    BreaksOff,
}

/// Returns the content at a position. An error means that the file is not a stream.
pub(crate) fn ahead(file: &File, at: u64) -> io::Result<Ahead> {
    let left = file.metadata()?.len().saturating_sub(at);
    if left < HEAD {
        return Ok(if left == 0 { Ahead::End } else { Ahead::BreaksOff });
    }
    let mut head = [0; HEAD as usize];
    file.read_exact_at(&mut head, at)?;
    let [.., a, b, c, d] = head;
    let size = u64::try_from(i32::from_le_bytes([a, b, c, d])).map_err(|_| damaged(at))?;
    if head[..4] != MARK || (size == 0 && left > HEAD) {
        return Err(damaged(at));
    }
    if size == 0 {
        return Ok(Ahead::End);
    }
    if HEAD + size > left {
        return Ok(Ahead::BreaksOff);
    }
    let mut head = vec![0; usize::try_from(size).map_err(|_| damaged(at))?];
    file.read_exact_at(&mut head, at + HEAD)?;
    let body = root_as_message(&head).map_err(|_| damaged(at))?.bodyLength();
    let body = u64::try_from(body).map_err(|_| damaged(at))?;
    if body > left - HEAD - size {
        return Ok(Ahead::BreaksOff);
    }
    let mut bytes = MutableBuffer::from_len_zeroed(usize::try_from(body).map_err(|_| damaged(at))?);
    file.read_exact_at(&mut bytes, at + HEAD + size)?;
    Ok(Ahead::Whole(Message { head, body: bytes.into(), end: at + HEAD + size + body }))
}

pub(crate) fn damaged(at: u64) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("is damaged at its byte {at}"))
}
