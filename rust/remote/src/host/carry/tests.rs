//! Messages over a socket: in order, what a process sent before it ended, and silence.

use std::sync::Mutex;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncReadExt, DuplexStream, duplex};
use tokio::net::UnixStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::*;

/// One end: messages to send, and received ones.
struct End {
    sends: tokio::sync::Mutex<UnboundedReceiver<Vec<u8>>>,
    came: Mutex<Vec<Vec<u8>>>,
}

impl Ends for End {
    async fn next(&self) -> Option<Vec<u8>> {
        self.sends.lock().await.recv().await
    }

    fn deliver(&self, message: Vec<u8>) {
        self.came.lock().expect("no panic").push(message);
    }
}

fn end() -> (UnboundedSender<Vec<u8>>, End) {
    let (send, sends) = unbounded_channel();
    (send, End { sends: tokio::sync::Mutex::new(sends), came: Mutex::default() })
}

fn pair() -> (DuplexStream, DuplexStream) {
    duplex(1 << 10)
}

const PATIENCE: Patience = Patience(Duration::from_secs(10));

#[tokio::test]
async fn messages_of_any_size_arrive_in_order_both_ways() {
    let ((send_a, a), (send_b, b)) = (end(), end());
    let (one, other) = pair();
    let sent: Vec<Vec<u8>> = (0..40_usize).map(|size| vec![size as u8; size * size * 50]).collect();
    for message in &sent {
        send_a.send(message.clone()).expect("open");
        send_b.send(message.clone()).expect("open");
    }
    let wait = async {
        while a.came.lock().expect("no panic").len() < sent.len() || b.came.lock().expect("no panic").len() < sent.len()
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(send_a);
    };
    let (one, other, ()) = tokio::join!(carry(one, &a, None, Some(PATIENCE)), carry(other, &b, None, None), wait);
    assert_eq!((one, other), (CarryEnd::Closed, CarryEnd::Lost("it closed the connection".to_owned())));
    assert_eq!(*a.came.lock().expect("no panic"), sent);
    assert_eq!(*b.came.lock().expect("no panic"), sent);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_says_nothing_is_lost_after_the_patience() {
    let (_send, a) = end();
    let (one, _other) = pair();
    let begun = Instant::now();
    assert_eq!(carry(one, &a, None, Some(PATIENCE)).await, CarryEnd::Silent);
    assert_eq!(begun.elapsed(), PATIENCE.0);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_reads_nothing_is_lost_in_the_middle_of_a_message() {
    let (send, a) = end();
    let (one, _other) = pair();
    send.send(vec![7; 1 << 20]).expect("open");
    let begun = Instant::now();
    assert_eq!(carry(one, &a, None, Some(PATIENCE)).await, CarryEnd::Silent);
    assert!(begun.elapsed() <= 2 * PATIENCE.0);
}

#[tokio::test(start_paused = true)]
async fn an_end_with_nothing_to_say_answers_and_stays() {
    let ((send_a, a), (_send_b, b)) = (end(), end());
    let (one, other) = pair();
    let close = async {
        tokio::time::sleep(100 * PATIENCE.0).await;
        drop(send_a);
    };
    let (one, other, ()) = tokio::join!(carry(one, &a, None, Some(PATIENCE)), carry(other, &b, None, None), close);
    assert_eq!((one, other), (CarryEnd::Closed, CarryEnd::Lost("it closed the connection".to_owned())));
}

#[tokio::test]
async fn garbage_is_a_broken_connection() {
    let (_send, a) = end();
    let (one, mut other) = pair();
    other.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("memory");
    let CarryEnd::Lost(how) = carry(one, &a, None, None).await else { panic!("it went on") };
    assert!(how.contains("no record of ours"), "{how}");
    assert!(a.came.lock().expect("no panic").is_empty());
}

#[tokio::test]
async fn last_messages_arrive_before_the_loss() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
    let peer = Pidfd::open(Pid::from_child(&child)).expect("a descriptor");
    let ((_send, a), (send_b, b)) = (end(), end());
    let (one, other) = UnixStream::pair().expect("a pair");
    for number in 0..100_u8 {
        send_b.send(vec![number; 100_000]).expect("open");
    }
    let other = tokio::spawn(async move { carry(other, &b, None, None).await });
    let (carried, ()) = tokio::join!(carry(one, &a, Some(&peer), Some(PATIENCE)), async {
        peer.signal(Signal::KILL).expect("it runs");
        peer.reap().await;
        drop(send_b);
    });
    assert!(matches!(carried, CarryEnd::Lost(_)), "{carried:?}");
    assert_eq!(a.came.lock().expect("no panic").len(), 100);
    assert!(matches!(other.await.expect("no panic"), CarryEnd::Closed | CarryEnd::Lost(_)));
    assert_eq!(child.try_wait().ok().flatten(), None, "it was reaped already");
}

#[tokio::test]
async fn a_process_that_ends_is_seen_while_its_socket_is_held_open() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
    let peer = Pidfd::open(Pid::from_child(&child)).expect("a descriptor");
    let (_send, a) = end();
    let (one, mut other) = pair();
    child.kill().expect("it lives");
    child.wait().expect("it ended");
    assert_eq!(carry(one, &a, Some(&peer), None).await, CarryEnd::Lost("its process ended".to_owned()));
    assert_eq!(other.read(&mut [0]).await.expect("closed"), 0);
}
