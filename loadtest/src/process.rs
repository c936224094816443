//! Servers under test: started on loopback, watched through the kernel's own accounting, ended with the run.

use std::fs;
use std::io::{Read as _, Seek as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;

/// Clock ticks a second in `/proc/PID/stat`: 100 on every Linux that matters.
const TICKS: f64 = 100.0;
/// A program that ends at once so often does so for a reason of its own.
const MOST_STARTS: u32 = 4;
/// A server that does not answer by then will not.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server of this run's own.
pub(crate) struct Process {
    child: Child,
    pub address: SocketAddr,
}

impl Process {
    /// Starts `program` with the arguments that `arguments` makes of a free address, and waits until that address answers. What was
    /// free a moment ago may be taken when the program gets there, so one that ends at once is started again elsewhere.
    pub(crate) fn start(program: &str, arguments: impl Fn(SocketAddr) -> Vec<String>) -> Result<Self, Failure> {
        let mut starts = 0;
        loop {
            starts += 1;
            match Self::start_once(program, &arguments)? {
                Ok(process) => return Ok(process),
                Err(_) if starts < MOST_STARTS => {}
                Err(how) => return Err(format!("{program} ended at once: {how}").into()),
            }
        }
    }

    /// The inner error is how it ended, and what it said.
    fn start_once(program: &str, arguments: impl Fn(SocketAddr) -> Vec<String>) -> Result<Result<Self, String>, Failure> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut said = tempfile::tempfile()?;
        let child = Command::new(program)
            .args(arguments(address))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said.try_clone()?)
            .spawn()
            .map_err(|error| format!("cannot start {program}: {error}"))?;
        let mut process = Self { child, address };
        let patience = Instant::now() + PATIENCE;
        loop {
            // Before the address is asked: whoever else has it would answer.
            if let Some(status) = process.child.try_wait()? {
                let mut text = String::new();
                said.rewind()?;
                said.read_to_string(&mut text)?;
                return Ok(Err(format!("{status}\n{}", text.trim())));
            }
            if TcpStream::connect_timeout(&address, Duration::from_millis(100)).is_ok() {
                return Ok(Ok(process));
            }
            if Instant::now() > patience {
                return Err(format!("{program} does not answer on {address}").into());
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
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

    /// Resident memory, MiB.
    pub(crate) fn resident_mib(&self) -> Result<f64, Failure> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("cannot read the memory of a process")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }

    /// Sends a signal by its name, as in `STOP`.
    pub(crate) fn signal(&self, name: &str) -> Result<(), Failure> {
        let status = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status()?;
        if status.success() { Ok(()) } else { Err(format!("cannot send {name} to a process").into()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The `weir` to measure: `named`, or the one of this repository, which is built when it is not up to date.
pub(crate) fn weir(named: Option<&Path>) -> Result<String, Failure> {
    if let Some(path) = named {
        return Ok(path.display().to_string());
    }
    let path: PathBuf = std::env::current_exe()?.with_file_name("weir");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    if manifest.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--locked", "--bin", "weir", "--manifest-path"]).arg(manifest);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        if !build.status()?.success() {
            return Err("weir cannot be built; name one with --weir".into());
        }
    }
    if path.exists() {
        Ok(path.display().to_string())
    } else {
        Err(format!("{} is not there; name one with --weir", path.display()).into())
    }
}

/// The bare handler: this program, with another command.
pub(crate) fn bare() -> Result<Process, Failure> {
    Process::start(&std::env::current_exe()?.display().to_string(), |address| vec!["bare".into(), "--bind".into(), address.to_string()])
}

/// A redis-server without persistence, on loopback and, when one is named, on a Unix socket.
pub(crate) fn redis(socket: Option<&Path>) -> Result<Process, Failure> {
    Process::start("redis-server", |address| {
        let port = address.port().to_string();
        let mut arguments = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"].map(str::to_owned).to_vec();
        arguments.extend(socket.map(|path| ["--unixsocket".to_owned(), path.display().to_string()]).into_iter().flatten());
        arguments
    })
}
