//! A TCP proxy between the service and a server, whose line a test spoils: slow, stalled, cut, or losing every reply.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{oneshot, watch};

/// What becomes of what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// It arrives.
    Good,
    /// Replies arrive this much later.
    Slow(Duration),
    /// Requests arrive, replies are lost; a connection that has lost one loses all that follow.
    LosesReplies,
    /// Nothing arrives, nobody is told; a connection that has lost something is dead for good.
    Swallows,
    /// Connections are ended, and new ones as soon as they are made.
    Cut,
}

pub struct Proxy {
    port: u16,
    line: watch::Sender<Line>,
    target: Arc<AtomicU16>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// One before the server on this port of this machine.
    pub fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let own_port = listener.local_addr().unwrap().port();
        let (line, watched) = watch::channel(Line::Good);
        let target = Arc::new(AtomicU16::new(port));
        let to = Arc::clone(&target);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let accept = async {
                    loop {
                        let Ok((client, _)) = listener.accept().await else { continue };
                        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, to.load(Ordering::SeqCst)));
                        tokio::spawn(carry(client, server, watched.clone()));
                    }
                };
                tokio::select! {
                    () = accept => {}
                    _ = stopped => {}
                }
            });
        });
        Self { port: own_port, line, target, stop: Some(stop), thread: Some(thread) }
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn set(&self, line: Line) {
        self.line.send_replace(line);
    }

    /// From here on new connections lead to another port; those that are open stay.
    pub fn lead_to(&self, port: u16) {
        self.target.store(port, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn carry(client: TcpStream, server: SocketAddr, line: watch::Receiver<Line>) {
    let mut cut = line.clone();
    let carried = async {
        let Ok(server) = TcpStream::connect(server).await else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        let requests = pump(from_client, to_server, line.clone(), |line| line == Line::Swallows);
        let replies = pump(from_server, to_client, line, |line| matches!(line, Line::Swallows | Line::LosesReplies));
        tokio::select! {
            () = requests => {}
            () = replies => {}
        }
    };
    tokio::select! {
        () = carried => {}
        _ = cut.wait_for(|line| *line == Line::Cut) => {}
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, line: watch::Receiver<Line>, loses: fn(Line) -> bool) {
    let mut bytes = vec![0; 64 * 1024];
    let mut dead = false;
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        let now = *line.borrow();
        dead |= loses(now);
        // (Requests are never late: both directions would add up.)
        if let Line::Slow(by) = now
            && loses(Line::LosesReplies)
        {
            tokio::time::sleep(by).await;
        }
        if !dead && to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
