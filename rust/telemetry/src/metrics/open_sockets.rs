//! The addresses that servers of this process listen on. A forked child closes its copies of their
//! sockets, which it finds among its descriptors: a listener and its connections have the same
//! local address.
//!
//! - The lock is held while a server begins to listen and its address is added, and during a fork.
//!   An address stays until all sockets of its server are closed.
//! - The lock is the standard library's, which has no state elsewhere: a child can release the lock
//!   that the forking thread took.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::net::{SocketAddrAny, getsockname};

static OPEN: Mutex<OpenSockets> = Mutex::new(OpenSockets { process: 0, addresses: Vec::new() });

thread_local! {
    /// The lock, which this thread holds during a fork.
    static FORKING: RefCell<Option<MutexGuard<'static, OpenSockets>>> = const { RefCell::new(None) };
}

struct OpenSockets {
    /// The process that added the addresses, which in a child is the parent.
    process: u32,
    /// One per listener. Two listeners may have the same for a moment.
    addresses: Vec<Address>,
}

/// Address that a server listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(SocketAddrAny);

impl Address {
    /// Returns whether a socket listens on this address, or is a connection to it.
    pub fn has(&self, socket: impl AsFd) -> bool {
        let Ok(other) = getsockname(socket) else { return false };
        match (SocketAddr::try_from(self.0.clone()), SocketAddr::try_from(other.clone())) {
            // A connection to a listener on all addresses of a host has one of these.
            (Ok(own), Ok(other)) if own.ip().is_unspecified() => own.port() == other.port(),
            _ => self.0 == other,
        }
    }
}

/// Called before a fork, on the forking thread: no server begins to listen until `release`.
pub fn hold() {
    FORKING.with_borrow_mut(|held| {
        held.get_or_insert_with(lock);
    });
}

/// Called after a fork, on the forking thread.
pub fn release() {
    FORKING.take();
}

/// Called after a fork in the child: returns the addresses whose sockets are to be closed, once.
pub fn inherited() -> Vec<Address> {
    let Some(mut open) = FORKING.take() else { return Vec::new() };
    if open.process == process::id() { Vec::new() } else { std::mem::take(&mut open.addresses) }
}

fn lock() -> MutexGuard<'static, OpenSockets> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn locked<T>(work: impl FnOnce(&mut OpenSockets) -> T) -> T {
    // A signal handler may call this on the thread that is about to fork.
    FORKING.with_borrow_mut(|held| match held {
        Some(open) => work(open),
        None => work(&mut lock()),
    })
}

/// An address in the list, until this is dropped.
pub struct AddressEntry(Address);

/// Begins to listen, and adds the address to the list.
pub fn listen<T: AsFd>(opening: impl FnOnce() -> io::Result<T>) -> io::Result<(T, AddressEntry)> {
    locked(|open| {
        let listener = opening()?;
        let address = Address(getsockname(&listener)?);
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
