//! A real redis-server of a test's own, on a free port, without persistence, gone when dropped.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::Connection;
use weir::store::{RedisOptions, RedisStore};

pub struct RedisServer {
    child: Child,
    port: u16,
    arguments: Vec<String>,
    dir: tempfile::TempDir,
}

/// A port that is free now; `below` another number.
pub fn free_port(below: u16) -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
        if port < below {
            return port;
        }
        let port = rand::random_range(10_000..below);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl RedisServer {
    /// Starts one and waits until it answers.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with more arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        // Another process may take the port between our asking for a free one and the server's binding it: try again then.
        for _ in 0..20 {
            // A node of a cluster also listens 10 000 above its port.
            let clustered = arguments.contains(&"--cluster-enabled");
            if let Some(server) = Self::try_start(free_port(if clustered { 50_000 } else { u16::MAX }), arguments) {
                return server;
            }
        }
        panic!("redis-server did not start on any of 20 free ports");
    }

    fn try_start(port: u16, arguments: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let child = spawn(port, dir.path(), &arguments);
        let mut server = Self { child, port, arguments, dir };
        server.answers().then_some(server)
    }

    fn answers(&mut self) -> bool {
        for _ in 0..500 {
            if self.child.try_wait().expect("its own child").is_some() {
                return false;
            }
            if let Ok(mut connection) = self.try_connect()
                && redis::cmd("PING").exec(&mut connection).is_ok()
            {
                return true;
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
        false
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn try_connect(&self) -> redis::RedisResult<Connection> {
        let connection = redis::Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(1))?;
        connection.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(connection)
    }

    /// A plain connection, for looking at what was stored.
    pub fn connect(&self) -> Connection {
        self.try_connect().expect("redis answers")
    }

    /// Runs one command, its words parted by spaces.
    pub fn run<T: redis::FromRedisValue>(&self, command: &str) -> T {
        self.try_run(command).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    pub fn try_run<T: redis::FromRedisValue>(&self, command: &str) -> redis::RedisResult<T> {
        let mut words = command.split(' ');
        let mut call = redis::cmd(words.next().unwrap_or_default());
        words.for_each(|word| {
            call.arg(word);
        });
        call.query(&mut self.try_connect()?)
    }

    /// A store on it, patient enough for a busy machine.
    pub fn store(&self) -> RedisStore {
        RedisStore::new(RedisOptions { url: self.url(), deadline: Duration::from_secs(20), ..RedisOptions::default() }).expect("a good url")
    }

    /// Sends it a signal by name, as in `STOP`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Kills it as a crash would, with all that it has not written.
    pub fn crash(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again where it was, and does not wait.
    pub fn start_again(&mut self) {
        self.crash();
        self.child = spawn(self.port, self.dir.path(), &self.arguments);
    }

    /// Starts it again where it was, and waits until it answers.
    pub fn restart(&mut self) {
        self.start_again();
        assert!(self.answers(), "redis-server did not come back");
    }
}

fn spawn(port: u16, dir: &Path, arguments: &[String]) -> Child {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
        .arg(dir)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("these tests need redis-server on the PATH (Debian: apt-get install redis-server): {error}"))
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.crash();
    }
}

/// Waits until something holds; fails, saying what, when it takes longer than anything here should.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if holds() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    panic!("waited in vain: {what}");
}
