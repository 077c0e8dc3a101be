//! Records on the socket: a kind, a length, and the bytes of a message.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::host::liveness::Progress;

/// Bytes that are read, or allocated, at a time.
const PIECE: u64 = 1 << 20;
// The kinds are not letters, so that no text begins like a record.
const MESSAGE: u8 = 0xa5;
const QUESTION: u8 = 0xa6;
const ANSWER: u8 = 0xa7;

/// One record.
#[derive(Debug, PartialEq, Eq)]
pub enum Record {
    Message(Vec<u8>),
    /// Question whether the other end is alive.
    Question,
    Answer,
}

/// Writes a record, which may stay in a buffer.
pub async fn write(to: &mut (impl AsyncWrite + Unpin), record: &Record) -> io::Result<()> {
    let (kind, bytes): (u8, &[u8]) = match record {
        Record::Message(bytes) => (MESSAGE, bytes),
        Record::Question => (QUESTION, &[]),
        Record::Answer => (ANSWER, &[]),
    };
    let mut head = [0; 9];
    head[0] = kind;
    head[1..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    to.write_all(&head).await?;
    to.write_all(bytes).await
}

/// Reads a record; `None` at the end of the stream between two records.
pub async fn read(from: &mut (impl AsyncRead + Unpin), progress: &Progress) -> io::Result<Option<Record>> {
    let mut head = [0; 9];
    if from.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut head[1..]).await?;
    progress.made();
    let [kind, length @ ..] = head;
    let length = u64::from_le_bytes(length);
    match (kind, length) {
        (MESSAGE, _) => Ok(Some(Record::Message(read_message(from, length, progress).await?))),
        (QUESTION, 0) => Ok(Some(Record::Question)),
        (ANSWER, 0) => Ok(Some(Record::Answer)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("what came is no record of ours: {head:02x?}"))),
    }
}

async fn read_message(from: &mut (impl AsyncRead + Unpin), length: u64, progress: &Progress) -> io::Result<Vec<u8>> {
    let mut message = Vec::new();
    loop {
        let left = length - message.len() as u64;
        if left == 0 {
            return Ok(message);
        }
        let piece = left.min(PIECE);
        // No more than a piece, which a `usize` holds.
        message.reserve(piece as usize);
        if from.take(piece).read_buf(&mut message).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        progress.made();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all_of(bytes: &[u8]) -> (Vec<Record>, io::Result<()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let (mut from, mut records) = (bytes, Vec::new());
            loop {
                match read(&mut from, &Progress::default()).await {
                    Ok(Some(record)) => records.push(record),
                    Ok(None) => return (records, Ok(())),
                    Err(error) => return (records, Err(error)),
                }
            }
        })
    }

    proptest! {
        #[test]
        fn written_values_are_read_back(messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8)) {
            let mut bytes = Vec::new();
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                for message in &messages {
                    write(&mut bytes, &Record::Question).await.expect("memory");
                    write(&mut bytes, &Record::Message(message.clone())).await.expect("memory");
                }
            });
            let (records, end) = all_of(&bytes);
            prop_assert!(end.is_ok());
            let read = records.into_iter().filter_map(|one| match one { Record::Message(bytes) => Some(bytes), _ => None });
            prop_assert_eq!(read.collect::<Vec<_>>(), messages);
        }

        #[test]
        fn garbage_ends_it(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (records, _) = all_of(&bytes);
            let read: usize = records.iter().map(|one| match one { Record::Message(bytes) => bytes.len(), _ => 0 }).sum();
            prop_assert!(read <= bytes.len());
        }
    }

    #[test]
    fn a_length_that_is_a_lie_takes_no_memory() {
        let mut bytes = vec![MESSAGE];
        bytes.extend_from_slice(&u64::MAX.to_le_bytes());
        bytes.extend_from_slice(b"little");
        let (records, end) = all_of(&bytes);
        assert!(records.is_empty());
        assert_eq!(end.expect_err("no end of a message").kind(), io::ErrorKind::UnexpectedEof);
    }
}
