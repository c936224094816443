//! What a variant runs against: started for it, told what happens meanwhile, asked what it cost.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::Failure;
use crate::process::{Process, bare, redis};
use crate::scenario::{Over, Scenario, Store, Variant, What};
use crate::tally::Figures;

/// Redis and the service, or a service that was there before.
pub(crate) struct Servers {
    pub address: SocketAddr,
    server: Option<Process>,
    redis: Option<Process>,
    folder: TempDir,
    limits: String,
}

/// What had been used at some moment.
pub(crate) struct Used {
    server_cpu: f64,
    redis_cpu: f64,
    server_mib: f64,
    redis_bytes: f64,
}

impl Servers {
    /// Those of a variant; with `url` the service that answers there, with whatever limits it has.
    pub(crate) fn start(scenario: &Scenario, variant: &Variant, weir: &str, url: Option<SocketAddr>) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("weir-loadtest-").tempdir()?;
        let limits = scenario.limits(variant).to_string();
        if let Some(address) = url {
            return Ok(Self { address, server: None, redis: None, folder, limits });
        }
        if variant.store == Store::Bare {
            let server = bare()?;
            return Ok(Self { address: server.address, server: Some(server), redis: None, folder, limits });
        }
        fs::write(folder.path().join("limit.yaml"), &limits)?;
        let socket = folder.path().join("redis.sock");
        let redis = (variant.store == Store::Redis).then(|| redis(Some(&socket))).transpose()?;
        let url = redis.as_ref().map(|redis| match variant.redis_over {
            Over::Tcp => format!("redis://{}", redis.address),
            Over::Unix => format!("redis+unix://{}", socket.display()),
        });
        let deadline = variant.redis_deadline_ms.map(|ms| ms.to_string());
        let more: Vec<&str> = deadline.iter().flat_map(|ms| ["--redis-deadline-ms", ms]).collect();
        let server = serve(weir, folder.path(), url.as_deref(), &more)?;
        Ok(Self { address: server.address, server: Some(server), redis, folder, limits })
    }

    /// Makes something happen.
    pub(crate) fn make(&self, what: What, number: usize) -> Result<(), Failure> {
        match (what, &self.redis) {
            (What::SaveLimits, _) => {
                // By rename, as editors save; a comment makes the content another one.
                let (new, file) = (self.folder.path().join("new"), self.folder.path().join("limit.yaml"));
                writeln!(fs::File::create(&new)?, "# saved {number} times\n{}", self.limits)?;
                Ok(fs::rename(new, file)?)
            }
            (What::StopRedis, Some(redis)) => redis.signal("STOP"),
            (What::ContinueRedis, Some(redis)) => redis.signal("CONT"),
            (_, None) => Err("there is no Redis of this run's own that could be stopped".into()),
        }
    }

    /// What has been used so far.
    pub(crate) fn used(&self) -> Result<Used, Failure> {
        let of = |process: &Option<Process>, what: fn(&Process) -> Result<f64, Failure>| process.as_ref().map_or(Ok(0.0), what);
        Ok(Used {
            server_cpu: of(&self.server, Process::cpu)?,
            redis_cpu: of(&self.redis, Process::cpu)?,
            server_mib: of(&self.server, Process::resident_mib)?,
            redis_bytes: of(&self.redis, used_memory)?,
        })
    }

    /// What `exchanges` cost since `before`.
    pub(crate) fn figures(&self, before: &Used, exchanges: u64, figures: &mut Figures) -> Result<(), Failure> {
        let after = self.used()?;
        let mut set = |name: &str, value: f64| figures.insert(name.to_owned(), value);
        let exchanges = exchanges.max(1) as f64;
        if self.server.is_some() {
            set("server_cpu_us", (after.server_cpu - before.server_cpu) / exchanges * 1e6);
            set("server_mib", after.server_mib);
            set("server_mib_gained", after.server_mib - before.server_mib);
        }
        if self.redis.is_some() {
            set("redis_cpu_us", (after.redis_cpu - before.redis_cpu) / exchanges * 1e6);
            set("redis_mib", after.redis_bytes / 1_048_576.0);
        }
        Ok(())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // What is stopped cannot be ended in an orderly way.
        if let Some(redis) = &self.redis {
            let _ = redis.signal("CONT");
        }
    }
}

/// The service with one worker, its files in `folder` (`limit.yaml`, when it is there), on Redis when a URL is given.
pub(crate) fn serve(weir: &str, folder: &Path, redis_url: Option<&str>, more: &[&str]) -> Result<Process, Failure> {
    let limits: PathBuf = folder.join("limit.yaml");
    Process::start(weir, |address| {
        let mut arguments: Vec<String> =
            ["serve", "--workers", "1", "--log-level", "error", "--max-subjects", "4000000"].map(str::to_owned).to_vec();
        arguments.extend(["--bind".to_owned(), address.to_string()]);
        arguments.extend(["--data-dir".to_owned(), folder.join(format!("data-{}", address.port())).display().to_string()]);
        if limits.exists() {
            arguments.extend(["--config".to_owned(), limits.display().to_string()]);
        }
        arguments.extend(redis_url.map(|url| ["--redis-url".to_owned(), url.to_owned()]).into_iter().flatten());
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        arguments
    })
}

/// What a Redis says about itself: one field of `INFO memory`, bytes.
pub(crate) fn used_memory(redis: &Process) -> Result<f64, Failure> {
    let info = redis_cli(redis, &["INFO", "memory"])?;
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).ok_or("Redis does not say how much memory it uses")?;
    Ok(line.trim().parse()?)
}

/// What redis-cli prints.
pub(crate) fn redis_cli(redis: &Process, arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new("redis-cli").args(["-p", &redis.address.port().to_string()]).args(arguments).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
