//! The addresses that servers of this process listen on, for a forked child to close its copies of
//! their sockets. It finds them among its descriptors: a listener and its connections have one
//! local address.
//!
//! - Listening and entering the address is one step, which has the lock, and so has whoever forks.
//!   An address stays until nothing of its server is open.
//! - The lock is the standard library's, which keeps nothing beside it: the child can release what
//!   the thread that forked had taken.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::net::{SocketAddrUnix, getsockname};

static OPEN: Mutex<OpenSockets> = Mutex::new(OpenSockets { process: 0, addresses: Vec::new() });

thread_local! {
    /// Lock that this thread holds from before a fork until after it.
    static FORKING: RefCell<Option<MutexGuard<'static, OpenSockets>>> = const { RefCell::new(None) };
}

struct OpenSockets {
    /// Whose they are: a child finds its parent's.
    process: u32,
    /// One a listener: two may have had the same for a moment.
    addresses: Vec<Address>,
}

/// Address that a server listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    /// A path in the file system.
    Unix(Vec<u8>),
}

impl Address {
    /// Returns the local address of a socket; `None` of another file, and of a socket without a
    /// name.
    fn of(socket: impl AsFd) -> Option<Self> {
        let address = getsockname(socket).ok()?;
        let unix = SocketAddrUnix::try_from(address.clone()).ok();
        let path = unix.as_ref().and_then(SocketAddrUnix::path_bytes).map(|path| Self::Unix(path.to_vec()));
        path.or_else(|| SocketAddr::try_from(address).ok().map(Self::Tcp))
    }

    /// Returns whether a socket is one that listens here, or a connection to it.
    pub fn has(&self, socket: impl AsFd) -> bool {
        match (self, Self::of(socket)) {
            // Connections to all addresses of a host have one of them.
            (Self::Tcp(own), Some(Self::Tcp(other))) if own.ip().is_unspecified() => own.port() == other.port(),
            (own, other) => other.as_ref() == Some(own),
        }
    }
}

/// Before a fork, on the thread that forks: no server begins to listen until `release`.
pub fn hold() {
    FORKING.with_borrow_mut(|held| {
        held.get_or_insert_with(lock);
    });
}

/// After a fork, on the thread that has forked.
pub fn release() {
    FORKING.take();
}

/// After a fork, in the child: the addresses whose sockets are to be closed. None another time.
pub fn inherited() -> Vec<Address> {
    let Some(mut open) = FORKING.take() else { return Vec::new() };
    if open.process == process::id() { Vec::new() } else { std::mem::take(&mut open.addresses) }
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

/// An address that is entered; it leaves when this is dropped.
pub struct AddressEntry(Address);

/// Begins to listen, and enters the address.
pub fn listen<T: AsFd>(opening: impl FnOnce() -> io::Result<T>) -> io::Result<(T, AddressEntry)> {
    locked(|open| {
        let listener = opening()?;
        let address = Address::of(&listener).ok_or(io::ErrorKind::AddrNotAvailable)?;
        if open.process != process::id() {
            (open.process, open.addresses) = (process::id(), Vec::new());
        }
        open.addresses.push(address.clone());
        Ok((listener, AddressEntry(address)))
    })
}

impl Drop for AddressEntry {
    fn drop(&mut self) {
        locked(|open| {
            if let Some(place) = open.addresses.iter().position(|one| *one == self.0) {
                open.addresses.swap_remove(place);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_listener_and_its_connections_are_found_and_clients_are_not() {
        for ip in [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED] {
            let (listener, AddressEntry(address)) = &listen(|| TcpListener::bind((ip, 0))).unwrap();
            let port = listener.local_addr().unwrap().port();
            let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            let (connection, _) = listener.accept().unwrap();
            assert!(address.has(listener) && address.has(&connection) && !address.has(&client));
            assert!(!address.has(TcpListener::bind((ip, 0)).unwrap()));
        }
        let path = std::env::temp_dir().join(format!("guerdon-sockets-{}", process::id()));
        let (listener, AddressEntry(address)) = &listen(|| UnixListener::bind(&path)).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        let (connection, _) = listener.accept().unwrap();
        assert!(address.has(listener) && address.has(&connection) && !address.has(&client));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn no_server_begins_while_a_thread_forks() {
        let (opening, opened) = channel();
        hold();
        let server = thread::spawn(move || {
            let (_, AddressEntry(address)) = &listen(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
            opening.send(locked(|open| open.addresses.contains(address))).unwrap();
        });
        assert_eq!(opened.recv_timeout(Duration::from_millis(50)), Err(RecvTimeoutError::Timeout));
        release();
        assert_eq!(opened.recv_timeout(Duration::from_secs(20)), Ok(true));
        server.join().unwrap();
    }

    #[test]
    fn the_process_that_opened_them_inherits_none() {
        let (_listener, entry) = listen(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        hold();
        assert_eq!(inherited(), []);
        assert!(locked(|open| open.addresses.contains(&entry.0)));
        assert_eq!(inherited(), [], "nor without a fork");
    }
}
