//! CPU per decision, as ratios against the floor in the same run. Requests a second drift with the machine; CPU per request
//! against the bare handler's, measured in turn, hardly does.

use std::process::Command;

use crate::Failure;
use crate::client::{check, drive};
use crate::process::{Process, redis, weir};

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
return {admitted, math.floor(tokens)}";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds; each measures everything once, in turn.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Requests of each measurement.
    #[arg(long, default_value_t = 100_000)]
    requests: u64,
    /// Connections.
    #[arg(long, default_value_t = 64)]
    connections: u64,
    /// Users that the requests are spread over.
    #[arg(long, default_value_t = 10_000)]
    users: u64,
}

/// One thing that is measured, and what each round found.
struct Row {
    name: &'static str,
    server_us: Vec<f64>,
    redis_us: Vec<f64>,
    per_second: Vec<f64>,
    p99_us: Vec<f64>,
}

impl Row {
    const fn new(name: &'static str) -> Self {
        Self { name, server_us: Vec::new(), redis_us: Vec::new(), per_second: Vec::new(), p99_us: Vec::new() }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?.block_on(measure(args))
}

async fn measure(args: &Args) -> Result<(), Failure> {
    let store = redis()?;
    let bare = Process::start(&std::env::current_exe()?.display().to_string(), |address| {
        vec!["bare".into(), "--bind".into(), address.to_string()]
    })?;
    let memory = Process::start(&weir()?, |address| serve(address, None))?;
    let on_redis = Process::start(&weir()?, |address| serve(address, Some(&store)))?;
    let mut rows = [
        Row::new("bare actix handler"),
        Row::new("weir, memory store"),
        Row::new("weir, redis store"),
        Row::new("weir, redis store, one refused user"),
    ];
    let mut plain = Vec::new();
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        plain.push(plain_bucket(args, &store)?);
        one(args, &mut rows[0], &bare, None, spread(args.users)).await?;
        one(args, &mut rows[1], &memory, None, spread(args.users)).await?;
        one(args, &mut rows[2], &on_redis, Some(&store), spread(args.users)).await?;
        one(args, &mut rows[3], &on_redis, Some(&store), |_| check(r#"{"user":"flood","cost":1}"#)).await?;
    }
    print(&rows, median(&plain));
    Ok(())
}

/// Requests spread over `users`, in an order that repeats none soon.
fn spread(users: u64) -> impl Fn(u64) -> Vec<u8> + Send + Sync + 'static {
    move |index| check(&format!(r#"{{"user":"user-{}","cost":1}}"#, index.wrapping_mul(2_654_435_761) % users))
}

fn serve(address: std::net::SocketAddr, store: Option<&Process>) -> Vec<String> {
    let mut arguments: Vec<String> = ["serve", "--workers", "1", "--log-level", "warn", "--bind"].map(str::to_owned).to_vec();
    arguments.push(address.to_string());
    arguments.extend(["--data-dir".to_owned(), format!("{}/weir-bench-{}", std::env::temp_dir().display(), address.port())]);
    if let Some(store) = store {
        arguments.extend([
            "--redis-url".to_owned(),
            format!("redis://{}", store.address),
            "--redis-deadline-ms".to_owned(),
            "5000".to_owned(),
        ]);
    }
    arguments
}

async fn one(
    args: &Args,
    row: &mut Row,
    server: &Process,
    store: Option<&Process>,
    request: impl Fn(u64) -> Vec<u8> + Send + Sync + 'static,
) -> Result<(), Failure> {
    let cpu_of_store = || store.map_or(Ok(0.0), Process::cpu);
    let (server_before, store_before) = (server.cpu()?, cpu_of_store()?);
    let mut outcome = drive(server.address, args.connections, args.requests, request).await?;
    let requests = outcome.requests() as f64;
    if let Some((status, count)) = outcome.statuses.iter().find(|(status, _)| !matches!(status, 200 | 429)) {
        return Err(format!("{}: {count} answers with status {status}", row.name).into());
    }
    row.server_us.push((server.cpu()? - server_before) / requests * 1e6);
    row.redis_us.push((cpu_of_store()? - store_before) / requests * 1e6);
    row.per_second.push(requests / outcome.took.as_secs_f64());
    row.p99_us.push(f64::from(outcome.quantile(0.99)));
    Ok(())
}

/// Redis CPU of one call of the plain bucket script, pipelined by redis-benchmark, µs.
fn plain_bucket(args: &Args, store: &Process) -> Result<f64, Failure> {
    let port = store.address.port().to_string();
    let loaded = Command::new("redis-cli").args(["-p", &port, "SCRIPT", "LOAD", PLAIN_BUCKET]).output()?;
    let hash = String::from_utf8(loaded.stdout)?.trim().to_owned();
    let before = store.cpu()?;
    let status = Command::new("redis-benchmark")
        .args(["-p", &port, "-n", &args.requests.to_string(), "-c", "16", "-P", "16", "-q", "-r", &args.users.to_string()])
        .args(["EVALSHA", &hash, "1", "plain:{__rand_int__}", "100", "2"])
        .stdout(std::process::Stdio::null())
        .status()?;
    if !status.success() {
        return Err("redis-benchmark failed".into());
    }
    Ok((store.cpu()? - before) / args.requests as f64 * 1e6)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The median of the ratios of each round.
fn ratio(values: &[f64], floor: &[f64]) -> f64 {
    median(&values.iter().zip(floor).map(|(value, floor)| value / floor).collect::<Vec<_>>())
}

fn print(rows: &[Row], plain: f64) {
    println!(
        "{:<38} {:>10} {:>8} {:>10} {:>8} {:>10} {:>9}",
        "medians", "server us", "x bare", "redis us", "x plain", "requests/s", "p99 us"
    );
    for row in rows {
        println!(
            "{:<38} {:>10.1} {:>8.2} {:>10.1} {:>8.2} {:>10.0} {:>9.0}",
            row.name,
            median(&row.server_us),
            ratio(&row.server_us, &rows[0].server_us),
            median(&row.redis_us),
            median(&row.redis_us) / plain,
            median(&row.per_second),
            median(&row.p99_us),
        );
    }
    println!("{:<38} {:>10} {:>8} {plain:>10.1} {:>8.2}", "plain bucket script, redis-benchmark", "-", "-", 1.0);
}
