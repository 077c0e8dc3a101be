//! One HTTP/1.1 connection, written by hand because no library injects these faults.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::fault::Fault;
use super::handler::{Request, handle};
use super::http2;
use super::state::JudgeState;

pub(super) async fn serve(stream: TcpStream, acceptor: Option<TlsAcceptor>, shared: Arc<JudgeState>) {
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = acceptor else { return talk(stream, shared).await };
    if let Ok(stream) = acceptor.accept(stream).await {
        shared.seen.handshakes.fetch_add(1, Ordering::Relaxed);
        talk(stream, shared).await;
    }
}

/// A byte stream, with or without TLS.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    fn tcp(&self) -> &TcpStream;
}

impl Wire for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Wire for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

async fn talk<S: Wire>(mut stream: S, shared: Arc<JudgeState>) {
    if shared.config.http2 {
        http2::serve(stream, shared).await;
        return;
    }
    let mut buffer = Vec::new();
    while let Ok(Some(request)) = read(&mut stream, &mut buffer).await {
        if !respond(&mut stream, &request, &shared).await.unwrap_or(false) {
            return;
        }
    }
}

/// The next request; `None` at the end of the connection.
async fn read<S: AsyncRead + Unpin>(stream: &mut S, buffer: &mut Vec<u8>) -> io::Result<Option<Request>> {
    let head = loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let text = String::from_utf8_lossy(&buffer[..head]).into_owned();
    let header = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
    };
    let length: usize = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    while buffer.len() < head + length {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let path = text.split(' ').nth(1).unwrap_or("/").to_owned();
    let key = header("authorization").unwrap_or_default();
    let body = buffer[head..head + length].to_vec();
    buffer.drain(..head + length);
    Ok(Some(Request { path, key, body }))
}

/// Answers a request; true if the connection goes on.
async fn respond<S: Wire>(stream: &mut S, request: &Request, shared: &JudgeState) -> io::Result<bool> {
    let (fault, answer) = {
        let handled = handle(request, shared);
        tokio::pin!(handled);
        let mut byte = [0; 1];
        tokio::select! {
            handled = &mut handled => handled,
            // No client sends more before its answer, so this is the end of the connection.
            _ = stream.read(&mut byte) => {
                shared.seen.abandoned.fetch_add(1, Ordering::Relaxed);
                return Ok(false);
            }
        }
    };
    let whole = |status: u16, more: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 {status} -\r\ncontent-type: application/json\r\n{more}content-length: {length}\r\n\r\n{body}")
    };
    match fault {
        Fault::None => stream.write_all(whole(200, "", &answer).as_bytes()).await?,
        Fault::BadJson => stream.write_all(whole(200, "", &answer[..answer.len() / 2]).as_bytes()).await?,
        Fault::Status(status, wait) => {
            let more = wait.map_or_else(String::new, |wait| format!("retry-after: {wait:.3}\r\n"));
            stream.write_all(whole(status, &more, r#"{"error": "as asked"}"#).as_bytes()).await?;
        }
        Fault::Redirect => stream.write_all(whole(307, "location: http://127.0.0.1:1/\r\n", "").as_bytes()).await?,
        Fault::EchoKey => stream.write_all(whole(401, "", &format!("wrong key: {}", request.key)).as_bytes()).await?,
        Fault::Reset => {
            stream.tcp().set_zero_linger()?; // makes closing it a reset
            return Ok(false);
        }
        Fault::Truncated => {
            let text = whole(200, "", &answer);
            stream.write_all(&text.as_bytes()[..text.len() - answer.len() / 2]).await?;
            stream.flush().await?;
            return Ok(false);
        }
        Fault::Silence => {
            let _ = stream.read(&mut [0; 1]).await;
            shared.seen.abandoned.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        }
    }
    stream.flush().await?;
    if request.path != "/seen" {
        shared.seen.answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(true)
}
