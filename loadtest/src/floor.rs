//! What everything is measured against, in the same run: a bare actix handler, and a plain bucket script in redis-benchmark.

use std::process::{Command, Stdio};

use crate::Failure;
use crate::client::{check, drive};
use crate::live::spread;
use crate::process::{Process, bare, redis};
use crate::servers::redis_cli;

/// A bucket and nothing else, as one would write it first: what Redis must do at the least.
const PLAIN_BUCKET: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stored = redis.call('HMGET', KEYS[1], 'tokens', 'refilled_at')
local capacity, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local tokens = math.min(capacity, (tonumber(stored[1]) or capacity) + (now - (tonumber(stored[2]) or now)) * rate / 1000000)
local admitted = 0
if tokens >= 1 then tokens, admitted = tokens - 1, 1 end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.17g', tokens), 'refilled_at', string.format('%d', now))
redis.call('PEXPIRE', KEYS[1], 110000)
return {admitted, math.floor(tokens)}
";

/// What one round found at the bottom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Floor {
    /// CPU of the bare handler for one request, µs.
    pub server_us: f64,
    pub per_second: f64,
    pub p99_ms: f64,
    /// CPU of Redis for one call of the plain script, µs.
    pub redis_us: f64,
}

/// The servers at the bottom, kept for the whole run.
pub(crate) struct Floors {
    bare: Process,
    redis: Process,
}

impl Floors {
    pub(crate) fn start() -> Result<Self, Failure> {
        Ok(Self { bare: bare()?, redis: redis(None)? })
    }

    /// Measures both with so many requests of so many users over so many connections.
    pub(crate) async fn measure(&self, requests: u64, users: u64, connections: u64) -> Result<Floor, Failure> {
        let before = self.bare.cpu()?;
        let request = move |index| check(&format!(r#"{{"user":"user-{}","cost":1}}"#, spread(index, users)));
        let outcome = drive(self.bare.address, connections, requests, request).await?;
        Ok(Floor {
            server_us: (self.bare.cpu()? - before) / requests as f64 * 1e6,
            per_second: requests as f64 / outcome.took.as_secs_f64(),
            p99_ms: outcome.latencies.quantile_ms(0.99),
            redis_us: plain_bucket(&self.redis, requests, users)?,
        })
    }
}

/// Redis CPU of one call of the plain bucket script, pipelined by redis-benchmark, µs.
pub(crate) fn plain_bucket(redis: &Process, requests: u64, users: u64) -> Result<f64, Failure> {
    let hash = redis_cli(redis, &["SCRIPT", "LOAD", PLAIN_BUCKET])?;
    let before = redis.cpu()?;
    let status = Command::new("redis-benchmark")
        .args(["-p", &redis.address.port().to_string(), "-n", &requests.to_string(), "-c", "16", "-P", "16", "-q"])
        .args(["-r", &users.to_string(), "EVALSHA", &hash, "1", "plain:{__rand_int__}", "100", "2"])
        .stdout(Stdio::null())
        .status()
        .map_err(|error| format!("cannot start redis-benchmark: {error}"))?;
    if !status.success() {
        return Err("redis-benchmark failed".into());
    }
    Ok((redis.cpu()? - before) / requests as f64 * 1e6)
}
