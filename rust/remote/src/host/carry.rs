//! One connection: carries the messages of its two ends over the socket, until either is done.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guerdon_core::pidfd::Pidfd;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::host::liveness::{Patience, Progress, silence};
use crate::host::record::{self, Record};

/// Size of buffers for small records; a larger message bypasses them.
const BUFFER: usize = 64 << 10;
/// Time for reading the bytes that a process sent before its end.
const DRAIN: Duration = Duration::from_millis(500);
/// Time in which a process must end after its socket was closed.
const ENDING: Duration = Duration::from_millis(50);
const ENDED: &str = "its process ended";
/// Time for the last message after this end is done.
const LAST: Duration = Duration::from_millis(500);

/// Source and target of messages at this end.
pub trait Ends: Send + Sync {
    /// Returns the next message to send; `None` when this end is done.
    fn next(&self) -> impl Future<Output = Option<Vec<u8>>> + Send;

    /// Takes a message that arrived.
    fn deliver(&self, message: Vec<u8>);
}

/// Reason for the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CarryEnd {
    /// This end was done.
    Closed,
    /// The other end is gone, for this reason.
    Lost(String),
    /// The other end sent nothing for too long.
    Silent,
}

/// Carries messages until either end is done.
///
/// # Arguments
/// `peer` is the process at the other end, if it can be watched. `patience` is present if the other
/// end must answer questions whether it is alive.
pub async fn carry<E: Ends>(
    socket: impl AsyncRead + AsyncWrite + Send,
    ends: &E,
    peer: Option<&Pidfd>,
    patience: Option<Patience>,
) -> CarryEnd {
    let (from, to) = tokio::io::split(socket);
    let (progress, signs) = (Progress::default(), Signs::default());
    let mut reading = pin!(read(BufReader::with_capacity(BUFFER, from), ends, &progress, &signs));
    let writing = write(BufWriter::with_capacity(BUFFER, to), ends, &signs);
    let ended = async {
        match peer {
            Some(peer) => peer.ended().await,
            None => std::future::pending().await,
        }
    };
    let silent = async {
        match patience {
            Some(patience) => silence(patience, &progress, || signs.ask()).await,
            None => std::future::pending().await,
        }
    };
    let lost = tokio::select! {
        lost = &mut reading => return CarryEnd::Lost(why(lost, peer).await),
        written = writing => match written {
            Ok(()) => return CarryEnd::Closed,
            Err(error) => format!("its connection broke ({error})"),
        },
        () = ended => ENDED.to_owned(),
        () = silent => return CarryEnd::Silent,
    };
    // Its last bytes may still be in the socket.
    let _ = timeout(DRAIN, reading).await;
    CarryEnd::Lost(lost)
}

/// If the process at the other end has ended, its end is a better reason than that of the
/// connection.
async fn why(lost: String, peer: Option<&Pidfd>) -> String {
    match peer {
        Some(peer) if timeout(ENDING, peer.ended()).await.is_ok() => ENDED.to_owned(),
        _ => lost,
    }
}

/// Questions and answers to be sent.
#[derive(Default)]
struct Signs {
    question: AtomicBool,
    answer: AtomicBool,
    any: Notify,
}

impl Signs {
    fn ask(&self) {
        self.question.store(true, Ordering::Relaxed);
        self.any.notify_one();
    }

    fn answer(&self) {
        self.answer.store(true, Ordering::Relaxed);
        self.any.notify_one();
    }
}

/// Delivers the arriving messages; returns how the other end ended.
async fn read(mut from: impl AsyncRead + Unpin, ends: &impl Ends, progress: &Progress, signs: &Signs) -> String {
    loop {
        match record::read(&mut from, progress).await {
            Ok(Some(Record::Message(message))) => ends.deliver(message),
            Ok(Some(Record::Question)) => signs.answer(),
            Ok(Some(Record::Answer)) => {}
            Ok(None) => return "it closed the connection".to_owned(),
            Err(error) => return format!("its connection broke ({error})"),
        }
    }
}

/// Sends the waiting messages; returns when this end is done.
async fn write(mut to: impl AsyncWrite + Unpin, ends: &impl Ends, signs: &Signs) -> io::Result<()> {
    loop {
        let mut next = pin!(ends.next());
        let message = loop {
            tokio::select! {
                message = &mut next => break message,
                () = signs.any.notified() => {
                    if signs.answer.swap(false, Ordering::Relaxed) {
                        record::write(&mut to, &Record::Answer).await?;
                    }
                    if signs.question.swap(false, Ordering::Relaxed) {
                        record::write(&mut to, &Record::Question).await?;
                    }
                    to.flush().await?;
                }
            }
        };
        let Some(message) = message else {
            // An error means that the other end is gone too.
            let _ = timeout(LAST, to.shutdown()).await;
            return Ok(());
        };
        record::write(&mut to, &Record::Message(message)).await?;
        to.flush().await?;
    }
}

#[cfg(test)]
mod tests;
