//! Requests to the forking processes; `python/guerdon/_worker/zygote_requests.py` has the other
//! side. A late answer is never mistaken for the answer to a later request: a process that owes one
//! to `WORKER` is given up, and answers to `REAP` name their pid.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::exit_status::ExitStatus;

pub(super) const FUNCTIONS: u32 = 1;
pub(super) const LOADER: u32 = 2;
pub(super) const WORKER: u32 = 3;
pub(super) const REAP: u32 = 4;
pub(super) const BECOME: u32 = 5;
pub(super) const END: u32 = 6;
pub(super) const LOADED: u32 = 7;
pub(super) const ORPHANS: u32 = 8;
pub(super) const KNOW: u32 = 9;
pub(super) const PRELOAD: u32 = 10;

/// Unread bytes that our end of a socket may hold: two large frames, so that sending a frame takes
/// one call and no waiting. The system may grant less.
const SEND_BUFFER: usize = 1 << 20;

/// Flag of `WORKER`: load all functions before reporting ready.
pub(super) const LOAD_FIRST: u32 = 1;

/// Flag of `PRELOAD`: import the modules in a child first.
pub(super) const TRY_FIRST: u32 = 1;

/// Reply of a forking process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub op: u32,
    pub extra: i32,
    pub value: i64,
}

/// The engine's end of a control socket.
pub(super) struct ZygoteSocket {
    stream: UnixStream,
}

/// Makes a connected pair: our end, non-blocking, and the other process's.
pub(super) fn pair() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = StdStream::pair()?;
    ours.set_nonblocking(true)?;
    rustix::net::sockopt::set_socket_send_buffer_size(&ours, SEND_BUFFER)?;
    Ok((UnixStream::from_std(ours)?, theirs.into()))
}

impl ZygoteSocket {
    /// Makes a control socket, and the end for the other process.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let (stream, theirs) = pair()?;
        Ok((Self { stream }, theirs))
    }

    /// Sends a request and descriptors (at most four).
    pub(super) async fn send(&self, op: u32, flags: u32, value: u64, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut request = [0; 16];
        request[..4].copy_from_slice(&op.to_le_bytes());
        request[4..8].copy_from_slice(&flags.to_le_bytes());
        request[8..].copy_from_slice(&value.to_le_bytes());
        loop {
            self.stream.writable().await?;
            let sent = self.stream.try_io(Interest::WRITABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
                let mut ancillary = SendAncillaryBuffer::new(&mut space);
                if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                let data = [IoSlice::new(&request)];
                Ok(rustix::net::sendmsg(self.stream.as_fd(), &data, &mut ancillary, SendFlags::NOSIGNAL)?)
            });
            match sent {
                Ok(16) => return Ok(()),
                // A stream socket with room for a byte has room for sixteen. If it had not, the two
                // sides would be out of step.
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for a reply. Fails if the other process is gone.
    pub(super) async fn receive(&self) -> io::Result<Reply> {
        let mut bytes = [0; 16];
        let mut have = 0;
        while have < bytes.len() {
            self.stream.readable().await?;
            match self.stream.try_read(&mut bytes[have..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => have += got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        let [op, extra] = [0, 4].map(|at| bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word)));
        let value = bytes[8..].first_chunk().map_or(0, |word| i64::from_le_bytes(*word));
        Ok(Reply { op, extra: extra.cast_signed(), value })
    }

    /// Waits for the reply to a request, and skips other replies.
    pub(super) async fn reply_to(&self, op: u32) -> io::Result<Reply> {
        loop {
            let reply = self.receive().await?;
            if reply.op == op {
                return Ok(reply);
            }
        }
    }

    /// Makes the process reap a child that has ended, and returns its exit status.
    pub(super) async fn reap(&self, pid: Pid) -> io::Result<ExitStatus> {
        let number = pid.as_raw_nonzero().get();
        self.send(REAP, 0, u64::from(number.unsigned_abs()), &[]).await?;
        loop {
            let reply = self.reply_to(REAP).await?;
            if reply.extra == number {
                return Ok(ExitStatus::from_wait(reply.value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[tokio::test]
    async fn a_late_reply_is_passed_over() {
        let (control, theirs) = ZygoteSocket::new().unwrap();
        let mut theirs = StdStream::from(theirs);
        for (pid, status) in [(5i32, 9i64), (7, 0x0300)] {
            let reply = [&REAP.to_le_bytes()[..], &pid.to_le_bytes(), &status.to_le_bytes()].concat();
            theirs.write_all(&reply).unwrap();
        }
        let pid = Pid::from_raw(7).unwrap();
        assert_eq!(control.reap(pid).await.unwrap(), ExitStatus::Exited(3));
    }
}
