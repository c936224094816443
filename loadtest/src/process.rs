//! Servers under test: started on loopback, watched through the kernel's own accounting, ended with the run.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;

/// Clock ticks a second in `/proc/PID/stat`: 100 on every Linux that matters.
const TICKS: f64 = 100.0;

/// A server of this run's own.
pub(crate) struct Process {
    child: Child,
    pub address: SocketAddr,
}

impl Process {
    /// Starts `program` with the arguments that `arguments` makes of a free address, and waits until that address answers.
    pub(crate) fn start(program: &str, arguments: impl Fn(SocketAddr) -> Vec<String>) -> Result<Self, Failure> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let child = Command::new(program)
            .args(arguments(address))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start {program}: {error}"))?;
        let mut process = Self { child, address };
        let patience = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect_timeout(&address, Duration::from_millis(100)).is_err() {
            if let Some(status) = process.child.try_wait()? {
                return Err(format!("{program} ended at once: {status}").into());
            }
            if Instant::now() > patience {
                return Err(format!("{program} does not answer on {address}").into());
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
        Ok(process)
    }

    /// CPU seconds that the process has used, user and system.
    pub(crate) fn cpu(&self) -> Result<f64, Failure> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The second field is the name in parentheses, which may hold spaces.
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
        match (ticks(11), ticks(12)) {
            (Some(user), Some(system)) => Ok((user + system) / TICKS),
            _ => Err("cannot read the CPU time of a process".into()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The `weir` binary of this build: beside the one that runs.
pub(crate) fn weir() -> Result<String, Failure> {
    let path: PathBuf = std::env::current_exe()?.with_file_name("weir");
    if path.exists() {
        Ok(path.display().to_string())
    } else {
        Err(format!("{} is not there; build it first: cargo build --release", path.display()).into())
    }
}

/// A redis-server without persistence.
pub(crate) fn redis() -> Result<Process, Failure> {
    Process::start("redis-server", |address| {
        ["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"].map(str::to_owned).to_vec()
    })
}
