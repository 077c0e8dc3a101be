//! Connections that are kept, used again and closed, over real sockets of this machine.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

fn pool(endpoint: &Endpoint) -> Pool {
    Pool::new(endpoint, 1).unwrap()
}

/// A server with empty responses that closes connections after `most` of them; counts
/// connections.
async fn server(most: usize) -> (Endpoint, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                for _ in 0..most {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await?);
                    }
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
                }
                io::Result::Ok(())
            });
        }
    });
    (Endpoint::new(&url, Vec::new(), None, false, None).unwrap(), count)
}

async fn exchange(pool: &Pool, endpoint: &Endpoint) {
    let answering = pool.send(endpoint, &Bytes::new().into(), &Progress::new()).await.unwrap();
    assert!(answering.response.status().is_success());
    drop(answering.response);
    answering.connection.release().await;
}

#[test]
fn there_are_as_many_connections_as_the_requests_take() {
    let endpoint = Endpoint::new("http://x", Vec::new(), None, false, None).unwrap();
    assert_eq!(connections(&endpoint, 2048), 2048);
    assert_eq!(connections(&endpoint.with_http2(true), 2048), 21);
}

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    let (endpoint, connections) = server(usize::MAX).await;
    let pool = pool(&endpoint);
    for _ in 0..20 {
        exchange(&pool, &endpoint).await;
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn connections_that_a_server_closed_are_not_used() {
    let (endpoint, connections) = server(1).await;
    let pool = pool(&endpoint);
    for round in 1..=3 {
        exchange(&pool, &endpoint).await;
        while pool.idle.lock().connections.iter().any(|(_, one)| !one.sender.is_closed()) {
            tokio::task::yield_now().await;
        }
        assert_eq!(connections.load(Ordering::Relaxed), round);
    }
}

#[tokio::test]
async fn connections_end_with_their_lifetime() {
    let (endpoint, connections) = server(usize::MAX).await;
    let pool = pool(&endpoint);
    exchange(&pool, &endpoint).await;
    pool.idle.lock().connections[0].1.ends = Instant::now();
    exchange(&pool, &endpoint).await;
    assert_eq!(connections.load(Ordering::Relaxed), 2);
    let ends: Vec<Duration> = (0..100).map(|_| lifetime()).collect();
    assert!(ends.iter().all(|one| (LIFETIME..2 * LIFETIME).contains(one)));
    assert!(ends.iter().max() > ends.iter().min(), "not all at once");
}

#[tokio::test]
async fn connections_idle_when_silence_began_are_not_used() {
    let (endpoint, connections) = server(usize::MAX).await;
    let pool = pool(&endpoint);
    exchange(&pool, &endpoint).await;
    pool.purge(Instant::now() - Duration::from_secs(60));
    exchange(&pool, &endpoint).await;
    assert_eq!(connections.load(Ordering::Relaxed), 1, "it answered since");
    pool.purge(Instant::now());
    exchange(&pool, &endpoint).await;
    assert_eq!(connections.load(Ordering::Relaxed), 2);
}

/// Few connections are being made at a time; who waits takes what became idle meanwhile.
#[tokio::test]
async fn connections_are_not_made_all_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint =
        Endpoint::new(&format!("http://{}/", listener.local_addr().unwrap()), vec![], None, false, None).unwrap();
    let pool = Arc::new(Pool::new(&endpoint, 500).unwrap());
    let taken = pool.connector.take_permits();
    let waits = tokio::spawn({
        let (pool, endpoint) = (pool.clone(), endpoint.clone());
        async move { exchange(&pool, &endpoint).await }
    });
    let patience = Duration::from_millis(200);
    assert!(tokio::time::timeout(patience, listener.accept()).await.is_err(), "no connection without a permit");
    drop(taken);
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    waits.await.unwrap();
}

/// A server that answers `most` requests of a connection, and reads one more before it closes
/// it.
async fn closing_server(most: usize) -> (Endpoint, Arc<AtomicUsize>) {
    closing(most, Duration::ZERO).await
}

async fn slow_to_close(after: Duration) -> (Endpoint, Arc<AtomicUsize>) {
    closing(1, after).await
}

async fn closing(most: usize, after: Duration) -> (Endpoint, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            for answered in 0..=most {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await?);
                }
                counted.fetch_add(1, Ordering::Relaxed);
                if answered < most {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
                } else {
                    tokio::time::sleep(after).await;
                }
            }
        }
        io::Result::Ok(())
    });
    (Endpoint::new(&url, Vec::new(), None, false, None).unwrap(), requests)
}

#[tokio::test]
async fn a_connection_that_is_closed_when_it_is_used_again() {
    let (endpoint, requests) = closing_server(1).await;
    let resend_after_idle = Pool { resend_after_idle: Duration::ZERO, ..pool(&endpoint) };
    exchange(&resend_after_idle, &endpoint).await;
    exchange(&resend_after_idle, &endpoint).await;
    assert_eq!(requests.load(Ordering::Relaxed), 3, "one came twice");
    // It ran for longer than a server takes to close an idle connection: it may have been begun.
    let (endpoint, requests) = slow_to_close(RESEND_WITHIN + Duration::from_millis(100)).await;
    let slow = Pool { resend_after_idle: Duration::ZERO, ..pool(&endpoint) };
    exchange(&slow, &endpoint).await;
    assert!(matches!(
        slow.send(&endpoint, &Bytes::new().into(), &Progress::new()).await,
        Err(TransportError::Exchange(_))
    ));
    assert_eq!(requests.load(Ordering::Relaxed), 2);
    // A connection in steady use ends because the server died, not by its idle timeout.
    let (endpoint, requests) = closing_server(1).await;
    let busy = Pool { resend_after_idle: Duration::MAX, ..pool(&endpoint) };
    exchange(&busy, &endpoint).await;
    assert!(matches!(
        busy.send(&endpoint, &Bytes::new().into(), &Progress::new()).await,
        Err(TransportError::Exchange(_))
    ));
    assert_eq!(requests.load(Ordering::Relaxed), 2);
    // A new connection is not tried for ever.
    let (endpoint, requests) = closing_server(0).await;
    let never = Pool { resend_after_idle: Duration::ZERO, ..pool(&endpoint) };
    assert!(never.send(&endpoint, &Bytes::new().into(), &Progress::new()).await.is_err());
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn unused_connections_are_closed() {
    let (endpoint, _) = server(usize::MAX).await;
    let pool = pool(&endpoint);
    exchange(&pool, &endpoint).await;
    assert_eq!(pool.idle.lock().connections.len(), 1);
    tokio::time::pause(); // no response is pending
    tokio::time::sleep(IDLE + Duration::from_secs(1)).await;
    assert!(pool.idle.lock().connections.is_empty() && !pool.idle.lock().reaping);
}
