//! A client that costs next to nothing: prepared requests over keep-alive connections, answers counted by status.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Failure;

/// What came back.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub statuses: BTreeMap<u16, u64>,
    pub latencies_us: Vec<u32>,
    pub took: Duration,
}

impl Outcome {
    pub(crate) fn requests(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// The latency that `share` of the answers did not exceed, µs.
    pub(crate) fn quantile(&mut self, share: f64) -> u32 {
        self.latencies_us.sort_unstable();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index within the list")]
        let index = ((self.latencies_us.len() as f64 * share) as usize).min(self.latencies_us.len().saturating_sub(1));
        self.latencies_us.get(index).copied().unwrap_or(0)
    }
}

/// The bytes of one `POST /v1/check`.
pub(crate) fn check(body: &str) -> Vec<u8> {
    format!("POST /v1/check HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
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
                    let status = connection.ask(&request(index)).await?;
                    outcome.latencies_us.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
                    *outcome.statuses.entry(status).or_default() += 1;
                }
            })
        })
        .collect();
    let mut all = Outcome::default();
    for task in tasks {
        let outcome = task.await??;
        all.latencies_us.extend(outcome.latencies_us);
        for (status, count) in outcome.statuses {
            *all.statuses.entry(status).or_default() += count;
        }
    }
    all.took = start.elapsed();
    Ok(all)
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4096) })
    }

    /// Sends one request and reads its answer to the end. The status.
    async fn ask(&mut self, request: &[u8]) -> Result<u16, Failure> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the server closed the connection".into());
            }
            let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = std::str::from_utf8(&self.buffer[..end])?;
            let length: usize = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(Ok(0), str::parse)?;
            if self.buffer.len() >= end + 4 + length {
                return Ok(head.get(9..12).unwrap_or("").parse()?);
            }
        }
    }
}
