//! The open sockets of all servers of this process, for a forked child to close its copies.
//!
//! - Opening a socket and entering it is one step, as is leaving and closing: both have the lock,
//!   and so has whoever forks. A child finds here the sockets that it has inherited, no more and no
//!   less.
//! - The lock is the standard library's, which keeps nothing beside it: the child can release what
//!   the thread that forked had taken.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

static OPEN: Mutex<OpenSockets> = Mutex::new(OpenSockets { process: 0, descriptors: BTreeSet::new() });

thread_local! {
    /// Lock that this thread holds from before a fork until after it.
    static FORKING: RefCell<Option<MutexGuard<'static, OpenSockets>>> = const { RefCell::new(None) };
}

struct OpenSockets {
    /// Whose they are: a child finds its parent's.
    process: u32,
    descriptors: BTreeSet<RawFd>,
}

/// Before a fork, on the thread that forks: no socket is opened or closed until `release`.
pub fn hold() {
    FORKING.with_borrow_mut(|held| {
        held.get_or_insert_with(lock);
    });
}

/// After a fork, on the thread that has forked.
pub fn release() {
    FORKING.take();
}

/// After a fork, in the child: the sockets of its parent, to be closed. None another time.
pub fn inherited() -> Vec<RawFd> {
    let Some(mut open) = FORKING.take() else { return Vec::new() };
    if open.process == process::id() {
        return Vec::new();
    }
    std::mem::take(&mut open.descriptors).into_iter().collect()
}

fn lock() -> MutexGuard<'static, OpenSockets> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn locked<T>(work: impl FnOnce(&mut OpenSockets) -> T) -> T {
    // A signal handler may come here on the thread that is about to fork.
    FORKING.with_borrow_mut(|held| match held {
        Some(open) => work(open),
        None => work(&mut lock()),
    })
}

/// Owner of a socket that is entered; it leaves when this is dropped.
pub struct RegisteredSocket<T> {
    descriptor: RawFd,
    /// None once it was given on.
    owner: Option<T>,
}

impl<T> RegisteredSocket<T> {
    /// Opens a socket and enters it.
    pub fn open(opening: impl FnOnce() -> io::Result<T>) -> io::Result<Self>
    where
        T: AsRawFd,
    {
        locked(|open| opening().map(|owner| Self::enter(open, owner)))
    }

    fn enter(open: &mut OpenSockets, owner: T) -> Self
    where
        T: AsRawFd,
    {
        let descriptor = owner.as_raw_fd();
        open.process = process::id();
        open.descriptors.insert(descriptor);
        Self { descriptor, owner: Some(owner) }
    }

    /// The same socket with another owner.
    pub fn give_to<U>(mut self, owner: impl FnOnce(T) -> io::Result<U>) -> io::Result<RegisteredSocket<U>> {
        let descriptor = self.descriptor;
        locked(|open| {
            let given = self.owner.take().ok_or_else(|| io::ErrorKind::NotConnected.into()).and_then(owner);
            if given.is_err() {
                open.descriptors.remove(&descriptor);
            }
            given.map(|owner| RegisteredSocket { descriptor, owner: Some(owner) })
        })
    }

    /// Its owner, until it was given on.
    pub const fn owner(&self) -> Option<&T> {
        self.owner.as_ref()
    }
}

impl<T> Drop for RegisteredSocket<T> {
    fn drop(&mut self) {
        if self.owner.is_some() {
            locked(|open| {
                open.descriptors.remove(&self.descriptor);
                self.owner = None;
            });
        }
    }
}

impl<T: Future + Unpin> Future for RegisteredSocket<T> {
    type Output = T::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T::Output> {
        self.owner.as_mut().map_or(Poll::Pending, |owner| Pin::new(owner).poll(context))
    }
}

/// What listens.
pub trait Listener {
    type Stream: AsRawFd;

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Self::Stream>>;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        self.poll_accept(context).map_ok(|(stream, _)| stream)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        self.poll_accept(context).map_ok(|(stream, _)| stream)
    }
}

impl<T: Listener> RegisteredSocket<T> {
    /// The next connection, entered.
    pub async fn accept(&self) -> io::Result<RegisteredSocket<T::Stream>> {
        poll_fn(|context| {
            let Some(listener) = self.owner() else { return Poll::Pending };
            locked(|open| listener.poll_accept(context).map_ok(|stream| RegisteredSocket::enter(open, stream)))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread;
    use std::time::Duration;

    use tokio::runtime::Builder;

    use super::*;

    /// Long enough to see that something waits.
    const WHILE: Duration = Duration::from_millis(50);
    const SOON: Duration = Duration::from_secs(20);

    fn listening() -> (RegisteredSocket<StdListener>, SocketAddr) {
        let listener = RegisteredSocket::open(|| StdListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.owner().unwrap().local_addr().unwrap();
        listener.owner().unwrap().set_nonblocking(true).unwrap();
        (listener, address)
    }

    fn is_entered(descriptor: RawFd) -> bool {
        locked(|open| open.descriptors.contains(&descriptor))
    }

    #[test]
    fn nothing_is_accepted_while_a_thread_forks() {
        let (listener, address) = listening();
        let (accepting, accepted) = channel();
        hold();
        let _client = StdStream::connect(address).unwrap();
        let server = thread::spawn(move || {
            Builder::new_current_thread().enable_all().build().unwrap().block_on(async move {
                let listener = listener.give_to(TcpListener::from_std).unwrap();
                let stream = listener.accept().await.unwrap();
                let descriptor = stream.owner().unwrap().as_raw_fd();
                accepting.send((descriptor, is_entered(descriptor))).unwrap();
                drop(stream);
            });
        });
        assert_eq!(accepted.recv_timeout(WHILE), Err(RecvTimeoutError::Timeout));
        release();
        let (_, entered) = accepted.recv_timeout(SOON).unwrap();
        assert!(entered);
        server.join().unwrap();
    }

    #[test]
    fn nothing_is_closed_while_a_thread_forks() {
        let (listener, _) = listening();
        let descriptor = listener.descriptor;
        let (closing, closed) = channel();
        hold();
        let closer = thread::spawn(move || {
            drop(listener);
            closing.send(()).unwrap();
        });
        assert_eq!(closed.recv_timeout(WHILE), Err(RecvTimeoutError::Timeout));
        assert!(is_entered(descriptor), "the thread that forks sees what is open");
        release();
        closed.recv_timeout(SOON).unwrap();
        closer.join().unwrap();
    }

    #[test]
    fn the_process_that_opened_them_inherits_none() {
        let (listener, _) = listening();
        hold();
        assert_eq!(inherited(), Vec::<RawFd>::new());
        assert!(is_entered(listener.descriptor));
        assert_eq!(inherited(), Vec::<RawFd>::new(), "nor without a fork");
    }

    #[test]
    fn an_owner_that_fails_leaves_nothing() {
        let (listener, _) = listening();
        let descriptor = listener.descriptor;
        hold(); // nobody else gets the number meanwhile
        let failed = listener.give_to(|_| Err::<StdListener, _>(io::ErrorKind::Other.into()));
        assert!(failed.is_err());
        assert!(!is_entered(descriptor));
        release();
    }
}
