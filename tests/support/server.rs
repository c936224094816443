//! The service for tests: in this process on a free port, or as the real binary.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use actix_web::web::Data;
use tokio::net::TcpSocket;
use tokio::sync::oneshot;
use weir::clock::{Clock, SystemClock};
use weir::config::Config;
use weir::http::{Api, Settings};
use weir::limit::{Field, Part};
use weir::limiter::Limiter;
use weir::server::{self, Options};
use weir::store::{MemoryStore, Store};
use weir::telemetry::Metrics;

/// Longer than anything here should take, so that a test that hangs fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Limits with these defaults.
pub fn limits(fields: &[(Field, &str)]) -> Config {
    let mut defaults = Part::default();
    for (field, text) in fields {
        defaults.set_text(*field, text).unwrap();
    }
    Config { defaults, ..Config::default() }
}

/// What a test server is made of.
pub struct Setup {
    pub config: Config,
    pub settings: Settings,
    pub options: Options,
    pub store: Arc<dyn Store>,
}

impl Default for Setup {
    fn default() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }
}

impl Setup {
    /// The built-in limits in memory, with this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self {
            config: Config::default(),
            settings: Settings::default(),
            options: Options {
                workers: 2.try_into().ok(),
                notice: Duration::ZERO,
                shutdown_timeout: Duration::from_secs(2),
                ..Options::default()
            },
            store: Arc::new(MemoryStore::new(100_000, clock)),
        }
    }

    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    pub fn workers(mut self, workers: usize) -> Self {
        self.options.workers = workers.try_into().ok();
        self
    }

    pub fn start(self) -> TestServer {
        TestServer::start(self)
    }
}

/// The service in this process, stopped on drop.
pub struct TestServer {
    pub address: SocketAddr,
    pub limiter: Arc<Limiter>,
    pub metrics: Arc<Metrics>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    pub fn start(setup: Setup) -> Self {
        let metrics = Arc::new(Metrics::new().unwrap());
        let limiter = Arc::new(Limiter::new(setup.config, setup.store).with_metrics(metrics.clone()));
        let api = Data::new(Api::new(limiter.clone(), metrics.clone(), setup.settings));
        let (tell, told) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let options = setup.options;
        let thread = std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let listener = server::listen("127.0.0.1:0".parse().unwrap()).unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                let shutdown = async {
                    let _ = stopped.await;
                };
                server::run(vec![listener], api, options, shutdown).await.unwrap();
            });
        });
        let address = told.recv_timeout(PATIENCE).unwrap();
        Self { address, limiter, metrics, stop: Some(stop), thread: Some(thread) }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn connect(&self) -> Raw {
        Raw::connect(self.address)
    }

    /// The value of a series in `/metrics`, by its whole name with labels; 0 when it is not there.
    pub fn metric(&self, series: &str) -> f64 {
        let text = String::from_utf8(self.metrics.text().unwrap()).unwrap();
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok()).unwrap_or(0.0)
    }

    /// How many decisions were made.
    pub fn decisions(&self) -> f64 {
        self.metric("weir_decision_duration_seconds_count")
    }

    /// Sends the signal to stop, and does not wait.
    pub fn begin_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.begin_stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap();
            }
        }
    }
}

/// `weir serve` as its own process on a free port, killed on drop.
pub struct Process {
    pub address: SocketAddr,
    /// Where it listens for operators alone, if it was told to.
    pub operators: Option<SocketAddr>,
    child: Child,
    log: JoinHandle<Vec<String>>,
    directory: tempfile::TempDir,
}

impl Process {
    /// Starts it with these arguments and waits until its log says where it listens.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    /// The same with these variables in its environment.
    pub fn start_with(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let own_directory = if arguments.contains(&"--data-dir") { vec![] } else { vec!["--data-dir", directory.path().to_str().unwrap()] };
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["serve", "--bind", "127.0.0.1:0", "--log-format", "json"])
            .args(own_directory)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (tell, told) = mpsc::channel();
        let log = std::thread::spawn(move || {
            let (mut lines, mut operators) = (Vec::new(), None);
            for line in stderr.lines().map_while(Result::ok) {
                if let Ok(event) = serde_json::from_str::<serde_json::Value>(&line)
                    && let Some(address) = event["address"].as_str().and_then(|address| address.parse().ok())
                {
                    match event["message"].as_str() {
                        Some("listening for operators") => operators = Some(address),
                        Some("listening") => drop(tell.send((address, operators))),
                        _ => {}
                    }
                }
                lines.push(line);
            }
            lines
        });
        let (address, operators) = told.recv_timeout(PATIENCE).expect("weir serve did not say where it listens");
        Self { address, operators, child, log, directory }
    }

    /// The admin token that it made.
    pub fn token(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("admin-token")).unwrap()
    }

    /// How much memory it holds, bytes.
    pub fn resident_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Its number in the process list.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal by name, as in `TERM`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end; its exit status and its log.
    pub fn wait(mut self) -> (ExitStatus, Vec<String>) {
        let status = self.child.wait().unwrap();
        let log = std::mem::replace(&mut self.log, std::thread::spawn(Vec::new));
        (status, log.join().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One TCP connection on which a test says exactly what it wants.
pub struct Raw(BufReader<TcpStream>);

/// What came back.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }
}

impl From<TcpStream> for Raw {
    fn from(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }
}

impl Raw {
    pub fn connect(address: SocketAddr) -> Self {
        TcpStream::connect(address).unwrap().into()
    }

    /// A connection from an address of our choice on the loopback network.
    pub fn connect_from(source: Ipv4Addr, address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stream = runtime.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::from((source, 0))).unwrap();
            socket.connect(address).await.unwrap().into_std().unwrap()
        });
        stream.set_nonblocking(false).unwrap();
        stream.into()
    }

    /// Writes as it is. A peer that has closed is no failure here: the test looks at what came back.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let _ = self.0.get_mut().write_all(bytes.as_ref());
        self
    }

    /// A POST of JSON to `/v1/check` with more header lines (each ended by CRLF).
    pub fn check(&mut self, headers: impl AsRef<[u8]>, body: &str) -> Option<Reply> {
        self.send(format!("POST /v1/check HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
        self.send(headers).send("\r\n").send(body);
        self.reply()
    }

    /// The next reply; nothing when the connection ends before it is whole.
    pub fn reply(&mut self) -> Option<Reply> {
        let mut reply = self.head_reply()?;
        let length: usize = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).ok()?;
        reply.body = String::from_utf8(body).ok()?;
        Some(reply)
    }

    /// The next reply to a HEAD: it has no body, whatever length it names.
    pub fn head_reply(&mut self) -> Option<Reply> {
        let mut line = String::new();
        self.0.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            self.0.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let reply = Reply { status, headers, body: String::new() };
        super::fields::check(&reply);
        Some(reply)
    }

    /// Whether the server closes the connection next, without another byte.
    pub fn is_closed(&mut self) -> bool {
        !matches!(self.0.fill_buf(), Ok(bytes) if !bytes.is_empty())
    }
}

/// What somebody sent with one POST.
pub struct Upload {
    pub path: String,
    pub body: Vec<u8>,
}

impl Upload {
    /// Takes the next connection, reads one request with a `Content-Length`, and answers 200.
    pub fn take(listener: &std::net::TcpListener) -> Self {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut reader = BufReader::new(stream);
        let (mut path, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if path.is_empty() {
                line.split(' ').nth(1).unwrap_or_default().clone_into(&mut path);
            }
            match line.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().unwrap(),
                None if line.trim_end().is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        Self { path, body }
    }
}
