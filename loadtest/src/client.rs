//! A client that costs next to nothing: prepared requests over keep-alive connections, answers read no further than needed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Failure;
use crate::stats::Latencies;

/// An answer that has not come by then does not come, and the connection is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the service has taken a changed limit file.
pub(crate) const RELOADS: &str = "weir_config_reloads_total{result=\"applied\"}";

/// What came back.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub requests: u64,
    /// Of them, answers other than 200 and 429.
    pub odd: u64,
    pub latencies: Latencies,
    pub took: Duration,
}

/// One answer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Reply {
    pub status: u16,
    pub reason: Reason,
    /// How long to wait, s, when refused.
    pub retry_after: Option<f64>,
    /// Whether the service said that the store was away.
    pub degraded: bool,
}

/// Why it was refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Reason {
    #[default]
    Other,
    Bucket,
    Window,
}

/// The bytes of one `POST` of `body` to `path`, with more headers, each with its line end.
pub(crate) fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// The bytes of one `POST /v1/check`.
pub(crate) fn check(body: &str) -> Vec<u8> {
    post("/v1/check", "", body)
}

/// Sends `total` requests over `connections`, each connection one after the other; `request` makes the nth.
pub(crate) async fn drive(
    address: SocketAddr,
    connections: u64,
    total: u64,
    request: impl Fn(u64) -> Vec<u8> + Send + Sync + 'static,
) -> Result<Outcome, Failure> {
    let (next, request) = (Arc::new(AtomicU64::new(0)), Arc::new(request));
    let start = Instant::now();
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            let (next, request) = (Arc::clone(&next), Arc::clone(&request));
            tokio::spawn(async move {
                let mut outcome = Outcome::default();
                let mut connection = Connection::open(address).await?;
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= total {
                        return Ok::<_, Failure>(outcome);
                    }
                    let sent = Instant::now();
                    let reply = connection.ask(&request(index)).await?;
                    outcome.latencies.add(sent.elapsed().as_secs_f64());
                    outcome.requests += 1;
                    outcome.odd += u64::from(!matches!(reply.status, 200 | 429));
                }
            })
        })
        .collect();
    let mut all = Outcome::default();
    for task in tasks {
        let outcome = task.await??;
        all.latencies.merge(&outcome.latencies);
        all.requests += outcome.requests;
        all.odd += outcome.odd;
    }
    all.took = start.elapsed();
    Ok(all)
}

/// One value of `/metrics`; `name` is all that stands before it, labels included. 0 when there is none.
pub(crate) async fn metric(address: SocketAddr, name: &str) -> Result<f64, Failure> {
    let mut connection = Connection::open(address).await?;
    connection.ask(b"GET /metrics HTTP/1.1\r\nhost: bench\r\n\r\n").await?;
    let text = String::from_utf8_lossy(&connection.buffer);
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.map_or(Ok(0.0), str::parse)?)
}

/// A keep-alive connection.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4096) })
    }

    /// Sends one request and reads its answer to the end. After an error the connection is of no more use.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Result<Reply, Failure> {
        tokio::time::timeout(PATIENCE, self.exchange(request)).await.map_err(|_| "no answer within ten seconds")?
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<Reply, Failure> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the server closed the connection".into());
            }
            let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = std::str::from_utf8(&self.buffer[..end])?;
            let length: usize = field(head, "content-length").map_or(Ok(0), str::parse)?;
            if let Some(body) = self.buffer.get(end + 4..end + 4 + length) {
                return read(head, body);
            }
        }
    }
}

/// The value of a header; servers of this suite write names in small letters.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn read(head: &str, body: &[u8]) -> Result<Reply, Failure> {
    let status = head.get(9..12).unwrap_or("").parse()?;
    let mut reply = Reply { status, degraded: head.contains("\nx-ratelimit-degraded: "), ..Reply::default() };
    if status == 429 {
        let finest = field(head, "retry-after-ms").and_then(|ms| ms.parse::<f64>().ok()).map(|ms| ms / 1e3);
        reply.retry_after = finest.or_else(|| field(head, "retry-after").and_then(|seconds| seconds.parse().ok()));
        let says = |reason: &str| body.windows(reason.len()).any(|part| part == reason.as_bytes());
        reply.reason = if says("\"reason\":\"bucket\"") {
            Reason::Bucket
        } else if says("\"reason\":\"window\"") {
            Reason::Window
        } else {
            Reason::Other
        };
    }
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_why_and_how_long_as_finely_as_it_can() {
        let head = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 1\r\nretry-after: 1\r\nretry-after-ms: 250";
        let reply = read(head, b"{\"reason\":\"window\"}").expect("an answer");
        assert_eq!(reply, Reply { status: 429, reason: Reason::Window, retry_after: Some(0.25), degraded: false });
        let reply = read("HTTP/1.1 429 X\r\nretry-after: 3\r\nx-ratelimit-degraded: local", b"{}").expect("an answer");
        assert_eq!(reply, Reply { status: 429, reason: Reason::Other, retry_after: Some(3.0), degraded: true });
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        assert!(read("HTTP/1.1 ", b"").is_err());
        assert!(read("", b"").is_err());
    }
}
