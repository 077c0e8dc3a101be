//! HTTP/2, with statuses and latencies as the only faults.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request as HyperRequest, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};

use super::fault::Fault;
use super::handler::{Request, handle};
use super::state::JudgeState;

/// Streams that a connection may have at a time, the same number as on many servers.
const STREAMS: u32 = 100;

pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, shared: Arc<JudgeState>) {
    let service = service_fn(move |request| answer(request, shared.clone()));
    let connection = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(STREAMS)
        .serve_connection(TokioIo::new(stream), service);
    let _ = connection.await;
}

async fn answer(request: HyperRequest<Incoming>, shared: Arc<JudgeState>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
    let (fault, text) = handle(&Request { path, key: String::new(), body }, &shared).await;
    shared.seen.answered.fetch_add(1, Ordering::Relaxed);
    let mut response = Response::new(Full::new(Bytes::from(text)));
    if let Fault::Status(status, _) = fault {
        *response.status_mut() = status.try_into().unwrap_or_default();
    }
    Ok(response)
}
