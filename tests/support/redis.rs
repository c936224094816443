//! A real redis-server of a test's own, on a free port, without persistence, gone when dropped.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::Connection;
use weir::store::{RedisOptions, RedisStore};

pub struct RedisServer {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
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
            if let Some(server) = Self::try_start(arguments) {
                return server;
            }
        }
        panic!("redis-server did not start on any of 20 free ports");
    }

    fn try_start(arguments: &[&str]) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
        let dir = tempfile::tempdir().expect("a temporary folder");
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
            .arg(dir.path())
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("these tests need redis-server on the PATH (Debian: apt-get install redis-server): {error}"));
        let mut server = Self { child, port, _dir: dir };
        for _ in 0..500 {
            if server.child.try_wait().expect("its own child").is_some() {
                return None;
            }
            if let Ok(mut connection) = server.try_connect()
                && redis::cmd("PING").exec(&mut connection).is_ok()
            {
                return Some(server);
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
        None
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    fn try_connect(&self) -> redis::RedisResult<Connection> {
        redis::Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(1))
    }

    /// A plain connection, for looking at what was stored.
    pub fn connect(&self) -> Connection {
        self.try_connect().expect("redis answers")
    }

    /// A store on it, patient enough for a busy machine.
    pub fn store(&self) -> RedisStore {
        RedisStore::new(RedisOptions { url: self.url(), deadline: Duration::from_secs(20), ..RedisOptions::default() }).expect("a good url")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
