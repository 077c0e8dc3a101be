//! Finds the ends of a stream's messages from their heads, so that a stream whose writer died can
//! be told from a damaged one.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use arrow_ipc::{MessageHeader, root_as_message};

/// Size of a head: a mark, and the size of the metadata that follow.
const HEAD: u64 = 8;
const MARK: [u8; 4] = [0xff; 4];

/// Content of a stream at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// A complete message that ends at this position.
    Whole(u64),
    /// The end of the stream.
    End,
    /// An incomplete message.
    BreaksOff,
}

/// Returns the content from `at` to the end of the next message of a kind. An error means that the
/// file is not a stream.
pub(crate) fn ahead(file: &File, mut at: u64, kind: MessageHeader) -> io::Result<Ahead> {
    let length = file.metadata()?.len();
    loop {
        let left = length.saturating_sub(at);
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
        let mut message = vec![0; usize::try_from(size).map_err(|_| damaged(at))?];
        file.read_exact_at(&mut message, at + HEAD)?;
        let message = root_as_message(&message).map_err(|_| damaged(at))?;
        let body = u64::try_from(message.bodyLength()).map_err(|_| damaged(at))?;
        if body > left - HEAD - size {
            return Ok(Ahead::BreaksOff);
        }
        at += HEAD + size + body;
        if message.header_type() == kind {
            return Ok(Ahead::Whole(at));
        }
    }
}

fn damaged(at: u64) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("is damaged at its byte {at}"))
}
