//! Connections that are kept, used again and closed, over real sockets of this machine.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

fn pool(endpoint: &Endpoint) -> Pool {
    Pool::new(endpoint, 1).unwrap()
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    requests: AtomicUsize,
}

/// A server with empty responses that closes connections after `most` of them: at once, or this
/// long after it has read one more request.
async fn server(most: usize, after_another: Option<Duration>) -> (Endpoint, Arc<Counts>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let counts = Arc::<Counts>::default();
    let counted = counts.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = counted.clone();
            counted.connections.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                for _ in 0..most {
                    request_of(&mut stream, &counted).await?;
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
                }
                if let Some(after) = after_another {
                    request_of(&mut stream, &counted).await?;
                    tokio::time::sleep(after).await;
                }
                io::Result::Ok(())
            });
        }
    });
    (Endpoint::new(&url, Vec::new(), None, false, None).unwrap(), counts)
}

async fn request_of(stream: &mut TcpStream, counted: &Counts) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    counted.requests.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

async fn sent<'a>(pool: &'a Pool, endpoint: &Endpoint) -> Result<Exchange<'a>, TransportError> {
    pool.send(endpoint, &Bytes::new().into(), &Progress::new()).await
}

async fn exchange(pool: &Pool, endpoint: &Endpoint) {
    let answering = sent(pool, endpoint).await.unwrap();
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
    let (endpoint, counts) = server(usize::MAX, None).await;
    let pool = pool(&endpoint);
    for _ in 0..20 {
        exchange(&pool, &endpoint).await;
    }
    assert_eq!(counts.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn connections_that_a_server_closed_are_not_used() {
    let (endpoint, counts) = server(1, None).await;
    let pool = pool(&endpoint);
    for round in 1..=3 {
        exchange(&pool, &endpoint).await;
        while pool.idle.lock().connections.iter().any(|(_, one)| !one.sender.is_closed()) {
            tokio::task::yield_now().await;
        }
        assert_eq!(counts.connections.load(Ordering::Relaxed), round);
    }
}

#[tokio::test]
async fn connections_end_with_their_lifetime() {
    let (endpoint, counts) = server(usize::MAX, None).await;
    let pool = pool(&endpoint);
    exchange(&pool, &endpoint).await;
    pool.idle.lock().connections[0].1.ends = Instant::now();
    exchange(&pool, &endpoint).await;
    assert_eq!(counts.connections.load(Ordering::Relaxed), 2);
    let ends: Vec<Duration> = (0..100).map(|_| lifetime()).collect();
    assert!(ends.iter().all(|one| (LIFETIME..2 * LIFETIME).contains(one)));
    assert!(ends.iter().max() > ends.iter().min(), "not all at once");
}

#[tokio::test]
async fn connections_idle_when_silence_began_are_not_used() {
    let (endpoint, counts) = server(usize::MAX, None).await;
    let pool = pool(&endpoint);
    exchange(&pool, &endpoint).await;
    pool.purge(Instant::now() - Duration::from_secs(60));
    exchange(&pool, &endpoint).await;
    assert_eq!(counts.connections.load(Ordering::Relaxed), 1, "it answered since");
    pool.purge(Instant::now());
    exchange(&pool, &endpoint).await;
    assert_eq!(counts.connections.load(Ordering::Relaxed), 2);
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

#[tokio::test]
async fn a_connection_that_is_closed_when_it_is_used_again() {
    let (endpoint, counts) = server(1, Some(Duration::ZERO)).await;
    let resend_after_idle = Pool { resend_after_idle: Duration::ZERO, ..pool(&endpoint) };
    exchange(&resend_after_idle, &endpoint).await;
    exchange(&resend_after_idle, &endpoint).await;
    assert_eq!(counts.requests.load(Ordering::Relaxed), 3, "one came twice");
    // It ran for longer than a server takes to close an idle connection: it may have been begun.
    let (endpoint, counts) = server(1, Some(RESEND_WITHIN + Duration::from_millis(100))).await;
    let slow = Pool { resend_after_idle: Duration::ZERO, ..pool(&endpoint) };
    exchange(&slow, &endpoint).await;
    assert!(matches!(sent(&slow, &endpoint).await, Err(TransportError::Exchange(_))));
    assert_eq!(counts.requests.load(Ordering::Relaxed), 2);
    // A connection in steady use ends because the server died, not by its idle timeout.
    let (endpoint, counts) = server(1, Some(Duration::ZERO)).await;
    let busy = Pool { resend_after_idle: Duration::MAX, ..pool(&endpoint) };
    exchange(&busy, &endpoint).await;
    assert!(matches!(sent(&busy, &endpoint).await, Err(TransportError::Exchange(_))));
    assert_eq!(counts.requests.load(Ordering::Relaxed), 2);
    // A new connection is not tried for ever.
    let (endpoint, counts) = server(0, Some(Duration::ZERO)).await;
    let never = Pool { resend_after_idle: Duration::ZERO, ..pool(&endpoint) };
    assert!(sent(&never, &endpoint).await.is_err());
    assert_eq!(counts.requests.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn unused_connections_are_closed() {
    let (endpoint, _) = server(usize::MAX, None).await;
    let pool = pool(&endpoint);
    exchange(&pool, &endpoint).await;
    assert_eq!(pool.idle.lock().connections.len(), 1);
    tokio::time::pause(); // no response is pending
    tokio::time::sleep(IDLE + Duration::from_secs(1)).await;
    assert!(pool.idle.lock().connections.is_empty() && !pool.idle.lock().reaping);
}
