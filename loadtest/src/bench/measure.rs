//! The servers of the bench, and one round of questions to each.

use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::Args;
use super::table::Row;
use crate::Failure;
use crate::client::{Outcome, RELOADS, check, drive, metric, post};
use crate::floor::plain_bucket;
use crate::live::spread;
use crate::process::{Process, bare, redis, weir};
use crate::servers::{serve, used_memory};
use crate::stats::{Latencies, median};

/// So many decisions in one call.
const BATCH: u64 = 100;
/// Who compares latencies has few connections: with many it is the queue that is measured.
const FEW: u64 = 8;
const SAVES_OF_A_ROUND: u32 = 2;
/// Ten times what is promised.
const RELOADED_WITHIN: Duration = Duration::from_secs(20);
/// Redis is asked for how long a decision took, not for how patient the service is.
const PATIENT: [&str; 2] = ["--redis-deadline-ms", "5000"];

/// A service, its Redis where it has one, and its folder.
struct Weir {
    server: Process,
    redis: Option<Process>,
    folder: TempDir,
    limits: &'static str,
}

impl Weir {
    fn start(weir: &str, on_redis: bool, limits: &'static str) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("weir-bench-").tempdir()?;
        std::fs::write(folder.path().join("limit.yaml"), limits)?;
        let redis = on_redis.then(|| redis(None)).transpose()?;
        let url = redis.as_ref().map(|redis| format!("redis://{}", redis.address));
        let server = serve(weir, folder.path(), url.as_deref(), if on_redis { &PATIENT } else { &[] })?;
        Ok(Self { server, redis, folder, limits })
    }
}

/// What the rounds found about one of the things measured.
#[derive(Default)]
pub(super) struct Found {
    server_us: Vec<f64>,
    redis_us: Vec<f64>,
    /// Decisions.
    per_second: Vec<f64>,
    p99_ms: Vec<f64>,
}

impl Found {
    /// Server and Redis together, µs.
    fn cpu_us(&self) -> Vec<f64> {
        self.server_us.iter().zip(&self.redis_us).map(|(server, redis)| server + redis).collect()
    }
}

/// Everything that is measured.
#[derive(Default)]
struct All {
    plain_us: Vec<f64>,
    bare: Found,
    memory: Found,
    redis: Found,
    flood: Found,
    bare_few: Found,
    redis_few: Found,
    batch: Found,
    few_subjects: Found,
    many_subjects: Found,
    small_window: Found,
    large_window: Found,
    still: Found,
    saved: Found,
}

pub(super) struct Bench<'a> {
    args: &'a Args,
    weir: String,
    bare: Process,
    memory: Weir,
    redis: Weir,
    few_subjects: Weir,
    many_subjects: Weir,
    small_window: Weir,
    large_window: Weir,
    all: All,
}

/// The default policy: a user of many asks seldom enough that its breaker stays closed.
const DEFAULT: &str = r#"{"defaults": {}}"#;
const SMALL_WINDOW: &str = r#"{"defaults": {"tokens_per_second": 100000, "bucket_capacity": 100000000, "window_limit": 10}}"#;
const LARGE_WINDOW: &str = r#"{"defaults": {"tokens_per_second": 100000, "bucket_capacity": 100000000, "window_limit": 10000}}"#;
/// Subjects whose windows are full when the cost of a large limit is measured.
const WINDOWS: u64 = 20;

impl<'a> Bench<'a> {
    pub(super) fn start(args: &'a Args) -> Result<Self, Failure> {
        let weir = weir(args.weir.as_deref())?;
        Ok(Self {
            args,
            bare: bare()?,
            memory: Weir::start(&weir, false, DEFAULT)?,
            redis: Weir::start(&weir, true, DEFAULT)?,
            few_subjects: Weir::start(&weir, true, DEFAULT)?,
            many_subjects: Weir::start(&weir, true, DEFAULT)?,
            small_window: Weir::start(&weir, true, SMALL_WINDOW)?,
            large_window: Weir::start(&weir, true, LARGE_WINDOW)?,
            all: All::default(),
            weir,
        })
    }

    /// Makes the subjects and windows whose number is to cost nothing.
    pub(super) async fn fill(&self) -> Result<(), Failure> {
        let Args { subjects, window_limit, connections, .. } = *self.args;
        eprintln!("making {subjects} subjects, and windows of {window_limit}");
        let each_once = move |index| check(&format!(r#"{{"user":"user-{index}","cost":1}}"#));
        drive(self.many_subjects.server.address, connections, subjects, each_once).await?;
        drive(self.few_subjects.server.address, connections, 1_000.min(subjects), each_once).await?;
        for weir in [&self.small_window, &self.large_window] {
            drive(weir.server.address, connections, WINDOWS * window_limit, of_users(WINDOWS)).await?;
        }
        Ok(())
    }

    /// Everything once, in turn with what it is compared with; every other round in the opposite order.
    pub(super) async fn round(&mut self, number: usize) -> Result<(), Failure> {
        let Args { users, connections, requests, subjects, .. } = *self.args;
        let all = &mut self.all;
        let of_redis = self.redis.redis.as_ref().ok_or("no Redis")?;
        all.plain_us.push(plain_bucket(of_redis, requests, users)?);
        let flood = |_| check(r#"{"user":"flood","cost":1}"#);
        let batch = move |index: u64| {
            let checks: Vec<_> = (0..BATCH).map(|place| format!(r#"{{"user":"user-{}"}}"#, spread(index * BATCH + place, users))).collect();
            post("/v1/check/batch", "", &format!(r#"{{"checks":[{}]}}"#, checks.join(",")))
        };
        one(&mut all.bare, (&self.bare, None), connections, (requests, 1), of_users(users)).await?;
        one(&mut all.memory, self.memory.both(), connections, (requests, 1), of_users(users)).await?;
        one(&mut all.redis, self.redis.both(), connections, (requests, 1), of_users(users)).await?;
        one(&mut all.batch, self.redis.both(), FEW, (requests.div_ceil(BATCH), BATCH), batch).await?;
        one(&mut all.flood, self.redis.both(), connections, (requests, 1), flood).await?;
        one(&mut all.bare_few, (&self.bare, None), FEW, (requests, 1), of_users(users)).await?;
        one(&mut all.redis_few, self.redis.both(), FEW, (requests, 1), of_users(users)).await?;
        let mut pairs = [
            (&mut all.few_subjects, &self.few_subjects, 1_000.min(subjects)),
            (&mut all.many_subjects, &self.many_subjects, subjects),
            (&mut all.small_window, &self.small_window, WINDOWS),
            (&mut all.large_window, &self.large_window, WINDOWS),
        ];
        if number % 2 == 1 {
            pairs.reverse();
        }
        for (found, weir, users) in pairs {
            one(found, weir.both(), connections, (requests, 1), of_users(users)).await?;
        }
        one(&mut all.still, self.memory.both(), FEW, (requests, 1), of_users(users)).await?;
        while_saved(&mut all.saved, &self.memory, requests, users).await
    }

    /// Bytes in Redis of an idle subject, and of an entry in its window.
    pub(super) async fn bytes(&self) -> Result<(f64, f64), Failure> {
        let weir = Weir::start(&self.weir, true, DEFAULT)?;
        let redis = weir.redis.as_ref().ok_or("no Redis")?;
        let users = self.args.users;
        // What the first decision of all makes (the script, a connection's buffers) belongs to no subject.
        drive(weir.server.address, self.args.connections, 1_000, of_users(1)).await?;
        let before = used_memory(redis)?;
        let each_once = |index| check(&format!(r#"{{"user":"idle-{index}","cost":1}}"#));
        drive(weir.server.address, self.args.connections, users, each_once).await?;
        let subjects = used_memory(redis)?;
        Ok(((subjects - before) / users as f64, self.entry_bytes().await?))
    }

    /// Of windows that are too large for Redis to pack them tightly, as those of busy users are.
    async fn entry_bytes(&self) -> Result<f64, Failure> {
        let weir = Weir::start(&self.weir, true, LARGE_WINDOW)?;
        let redis = weir.redis.as_ref().ok_or("no Redis")?;
        drive(weir.server.address, self.args.connections, 1_000, of_users(1)).await?;
        let before = used_memory(redis)?;
        let entries = WINDOWS * self.args.users / 10;
        let some = |index| check(&format!(r#"{{"user":"busy-{}","cost":1}}"#, index % WINDOWS));
        drive(weir.server.address, self.args.connections, entries, some).await?;
        Ok((used_memory(redis)? - before) / entries as f64)
    }

    pub(super) fn rows(&self, (subject_bytes, entry_bytes): (f64, f64)) -> Vec<Row> {
        let all = &self.all;
        let bare = "the bare actix handler";
        let plain = "a plain bucket script, redis-benchmark";
        let us = |one: &[f64], other: &[f64]| format!("{:.1} / {:.1} us", median(one), median(other));
        let rate = |found: &Found| best(&found.per_second) / best(&all.bare.per_second);
        let rates = |found: &Found| format!("{:.0} / {:.0} a second, the best", best(&found.per_second), best(&all.bare.per_second));
        let grown = |many: &Found, few: &Found| (ratio(&many.cpu_us(), &few.cpu_us()), us(&many.cpu_us(), &few.cpu_us()));
        let (subjects, subjects_us) = grown(&all.many_subjects, &all.few_subjects);
        let (windows, windows_us) = grown(&all.large_window, &all.small_window);
        let p99 = |one: &Found, other: &Found| format!("{:.2} / {:.2} ms", median(&one.p99_ms), median(&other.p99_ms));
        let at_most =
            |what: &str, against, aim, one: &[f64], other: &[f64]| Row::new(what, against, Some(aim), ratio(one, other)).of(us(one, other));
        vec![
            at_most("server CPU, memory store", bare, 1.25, &all.memory.server_us, &all.bare.server_us),
            at_most("server CPU, exact hybrid on Redis", bare, 1.6, &all.redis.server_us, &all.bare.server_us),
            at_most("Redis CPU, exact hybrid, breaker closed", plain, 1.0, &all.redis.redis_us, &all.plain_us),
            at_most("Redis CPU, one refused subject flooding", plain, 0.02, &all.flood.redis_us, &all.plain_us),
            Row::at_least("requests a second, memory store", bare, 0.8, rate(&all.memory)).of(rates(&all.memory)),
            Row::at_least("requests a second, Redis", bare, 0.45, rate(&all.redis)).of(rates(&all.redis)),
            Row::at_least("requests a second, refused", bare, 0.75, rate(&all.flood)).of(rates(&all.flood)),
            Row::new("p99 at 8 connections, Redis", bare, Some(3.0), ratio(&all.redis_few.p99_ms, &all.bare_few.p99_ms))
                .of(p99(&all.redis_few, &all.bare_few)),
            Row::new(format!("CPU (server + Redis), {} subjects", self.args.subjects), "1000 subjects", Some(1.15), subjects)
                .of(subjects_us),
            Row::new(format!("CPU (server + Redis), window limit {}", self.args.window_limit), "window limit 10", Some(1.25), windows)
                .of(windows_us),
            Row::new("Redis bytes, an idle subject", "", Some(350.0), subject_bytes),
            Row::new("Redis bytes, a window entry", "", Some(135.0), entry_bytes),
            Row::at_least("decisions a second, batches of 100", "single checks", 4.0, ratio(&all.batch.per_second, &all.redis.per_second))
                .of(format!("{:.0} / {:.0} a second", median(&all.batch.per_second), median(&all.redis.per_second))),
            Row::new("p99 while the limit file is saved and reloaded", "before", None, ratio(&all.saved.p99_ms, &all.still.p99_ms))
                .of(p99(&all.saved, &all.still)),
        ]
    }
}

impl Weir {
    const fn both(&self) -> (&Process, Option<&Process>) {
        (&self.server, self.redis.as_ref())
    }
}

fn of_users(users: u64) -> impl Fn(u64) -> Vec<u8> + Send + Sync + 'static {
    move |index| check(&format!(r#"{{"user":"user-{}","cost":1}}"#, spread(index, users)))
}

/// Asks `times` with `decisions` each, and notes what one decision cost.
async fn one(
    found: &mut Found,
    (server, redis): (&Process, Option<&Process>),
    connections: u64,
    (times, decisions): (u64, u64),
    request: impl Fn(u64) -> Vec<u8> + Send + Sync + 'static,
) -> Result<(), Failure> {
    let of_redis = || redis.map_or(Ok(0.0), Process::cpu);
    let (server_before, redis_before) = (server.cpu()?, of_redis()?);
    let Outcome { odd, latencies, took, .. } = drive(server.address, connections, times, request).await?;
    if odd > 0 {
        return Err(format!("{odd} answers were neither 200 nor 429").into());
    }
    let count = (times * decisions) as f64;
    found.server_us.push((server.cpu()? - server_before) / count * 1e6);
    found.redis_us.push((of_redis()? - redis_before) / count * 1e6);
    found.per_second.push(count / took.as_secs_f64());
    found.p99_ms.push(latencies.quantile_ms(0.99));
    Ok(())
}

/// The same while the limit file is saved, each time with another content: some in every round. The service takes a content when it
/// has not moved for a while, so there is a second between two, and requests go on until the last one is in force.
async fn while_saved(found: &mut Found, weir: &Weir, requests: u64, users: u64) -> Result<(), Failure> {
    let (address, file) = (weir.server.address, weir.folder.path().join("limit.yaml"));
    let before = metric(address, RELOADS).await?;
    let mut latencies = Latencies::default();
    for number in 0..SAVES_OF_A_ROUND {
        let new = file.with_extension("new");
        // Two contents: no round writes what is there already.
        std::fs::write(&new, format!("# saved, {}\n{}", if number % 2 == 0 { "then" } else { "again" }, weir.limits))?;
        std::fs::rename(&new, &file)?;
        let saved = Instant::now();
        while metric(address, RELOADS).await? < before + f64::from(number + 1) {
            if saved.elapsed() > RELOADED_WITHIN {
                return Err("the limit file was saved and is not in force".into());
            }
            let outcome = drive(address, FEW, requests.div_ceil(10), of_users(users)).await?;
            if outcome.odd > 0 {
                return Err(format!("{} answers were neither 200 nor 429 while the limit file was saved", outcome.odd).into());
            }
            latencies.merge(&outcome.latencies);
        }
    }
    found.p99_ms.push(latencies.quantile_ms(0.99));
    Ok(())
}

/// The median of the ratios of each round.
fn ratio(values: &[f64], floor: &[f64]) -> f64 {
    median(&values.iter().zip(floor).map(|(value, floor)| value / floor).collect::<Vec<_>>())
}

fn best(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}
