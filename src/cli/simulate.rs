//! `weir simulate`.

mod print;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::Failure;
use crate::clock::ManualClock;
use crate::config::{self, Config};
use crate::identity::Subject;
use crate::limit::{Decision, Micros, Reason};
use crate::simulate::{self, Backend, Error, Options, Report, SubjectFrom};
use crate::store::{MemoryStore, RedisOptions, RedisStore};

/// A replay has time; a Redis that does not answer for this long is not there.
const REDIS_DEADLINE: Duration = Duration::from_secs(10);

/// Files smaller than this are replayed before a bar could be read.
const BAR_FROM_BYTES: u64 = 4 * 1024 * 1024;

const EXAMPLES: &str = "\
Examples:
  weir simulate --trace /var/log/nginx/access.log            yesterday, the built-in limits
  weir simulate --config limit.yaml --trace access.log.2.gz  against limits of your own
  weir simulate --trace trace.jsonl --decisions out.jsonl    every decision, one a line
  zcat -f access.log* | weir simulate --trace - --json       from a pipe, the report as JSON

A trace has one JSON object a line:
  {\"at\":1767225600000000,\"user\":\"a\",\"cost\":1}     a request (at: microseconds; cost: 1)
  {\"at\":1767225600000000,\"user\":\"a\",\"policy\":{\"bucket_capacity\":50}}
                                                  that user's override from here on
or is an access log in nginx's combined format. Either may be gzip.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The limits to try; without it the built-in ones.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The trace or access log to replay; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Where state is kept: memory, or a Redis (under a random prefix that is removed afterwards).
    #[arg(long, value_name = "memory|redis://HOST", default_value = "memory")]
    store: String,
    /// Write one JSON line per decision there; `-` is stdout, and the report then goes to stderr.
    #[arg(long, value_name = "FILE")]
    decisions: Option<PathBuf>,
    /// Who a line of an access log is about.
    #[arg(long, value_enum, default_value_t = From::User)]
    subject: From,
    /// How many users the table names, those with the most refusals first; the others are summed up.
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// How many users the memory store holds at once.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100_000_000))]
    max_subjects: usize,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum From {
    /// The remote user, or the address where there is none.
    User,
    /// Always the address.
    Address,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let config = args.config.as_deref().map_or_else(|| Ok(Config::default()), load_config)?;
    let mut decisions = args.decisions.as_deref().map(create).transpose()?;
    let subject_from = match args.subject {
        From::User => SubjectFrom::User,
        From::Address => SubjectFrom::Address,
    };
    let options = Options { config: &config, subject_from };
    let mut write = |subject: &Subject, at: Micros, decision: &Decision| {
        decisions.as_mut().map_or(Ok(()), |out| write_decision(out, subject, at, decision))
    };

    let bar = progress(&args.trace);
    let replayed = replay_on(args, &options, &bar, &mut write);
    bar.finish_and_clear();
    let flushed = decisions.as_mut().map_or(Ok(()), Write::flush).map_err(Error::Write);
    let report = match replayed.and_then(|report| Ok(flushed.map(|()| report)?)) {
        Ok(report) => report,
        Err(Ended::Quietly) => return Ok(()),
        Err(Ended::With(failure)) => return Err(failure),
    };
    finish(args, &report)
}

/// How a replay ends without a report.
enum Ended {
    /// Whoever read the decisions has read enough.
    Quietly,
    With(Failure),
}

impl std::convert::From<Error> for Ended {
    fn from(error: Error) -> Self {
        match &error {
            Error::Write(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Self::Quietly,
            Error::Read(_) => Self::With(Failure::new(&error).hint("if the file is gzip, see whether it is whole: gzip -t FILE")),
            Error::Policy(_) => Self::With(Failure::new(&error).hint("weir check-config FILE says where")),
            Error::Write(_) => Self::With(Failure::new(&error).hint("see whether the disk is full")),
            Error::Store(_) => Self::With(Failure::new(&error).hint("the replay ends here; start it again when the store answers")),
        }
    }
}

impl std::convert::From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::With(failure)
    }
}

fn replay_on(args: &Args, options: &Options<'_>, bar: &ProgressBar, write: &mut simulate::OnDecision<'_>) -> Result<Report, Ended> {
    let input = bar.wrap_read(open(&args.trace)?);
    let input = simulate::open(input).map_err(Error::Read)?;
    if args.store == "memory" {
        let store = MemoryStore::new(args.max_subjects, Arc::new(ManualClock::new(0)));
        return Ok(simulate::replay(input, options, &Backend::Memory(&store), write)?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("the runtime does not start: {error}")))?;
    let store = open_store(&args.store, format!("weir-simulate-{}", uuid::Uuid::new_v4()))?;
    let replayed = simulate::replay(input, options, &Backend::Other(&store, &runtime), write);
    // However it ended, nothing stays behind; what cannot be removed expires by itself.
    let patience = if replayed.is_ok() { 6 * REDIS_DEADLINE } else { Duration::from_secs(1) };
    let removed = runtime.block_on(async { tokio::time::timeout(patience, store.delete_all()).await });
    let report = replayed?;
    let left = |error: &dyn std::fmt::Display| {
        Failure::new(format!("the keys of this replay could not be removed: {error}"))
            .hint("they begin with weir-simulate- and expire by themselves")
    };
    removed.map_err(|error| left(&error))?.map_err(|error| left(&error))?;
    Ok(report)
}

/// The limits of a file.
fn load_config(path: &Path) -> Result<Config, Failure> {
    Ok(config::load(path).map_err(Failure::new)?.config)
}

/// A store at `url`, with all its keys under `prefix`.
fn open_store(url: &str, prefix: String) -> Result<RedisStore, Failure> {
    let neither = || format!("--store {url:?} is neither memory nor a redis:// address");
    if !url.contains("://") {
        return Err(Failure::new(neither()).hint("use --store memory"));
    }
    let options = RedisOptions { url: url.to_owned(), prefix, deadline: REDIS_DEADLINE, ..RedisOptions::default() };
    RedisStore::new(options).map_err(|error| Failure::new(format!("{}: {error}", neither())).hint("it takes redis://host:port"))
}

fn open(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let failed =
        |error: io::Error| Failure::new(format!("{} cannot be read: {error}", path.display())).hint("--trace takes a file, or - for stdin");
    if path.is_dir() {
        return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    Ok(Box::new(File::open(path).map_err(failed)?))
}

fn create(path: &Path) -> Result<Box<dyn Write>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(BufWriter::new(io::stdout().lock())));
    }
    let file = File::create(path).map_err(|error| {
        Failure::new(format!("{} cannot be written: {error}", path.display())).hint("--decisions takes a file, or - for stdout")
    })?;
    Ok(Box::new(BufWriter::with_capacity(128 * 1024, file)))
}

/// A bar over the bytes of the file as it lies there, packed or not; hidden when there is nobody to see it.
fn progress(path: &Path) -> ProgressBar {
    let bytes = path.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len());
    if !io::stderr().is_terminal() || bytes.is_some_and(|bytes| bytes < BAR_FROM_BYTES) {
        return ProgressBar::hidden();
    }
    let (bar, template) = match bytes {
        Some(bytes) => (ProgressBar::new(bytes), "{bar:40} {bytes} of {total_bytes}, {eta} left"),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes} read, {elapsed}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[derive(Serialize)]
struct Line<'a> {
    at: Micros,
    user: &'a str,
    allowed: bool,
    reason: Option<&'static str>,
    retry_after_us: Option<Micros>,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset_after_us: Option<Micros>,
    breaker_open: bool,
}

fn write_decision(out: &mut impl Write, subject: &Subject, at: Micros, decision: &Decision) -> io::Result<()> {
    let line = Line {
        at,
        user: &subject.to_string(),
        allowed: decision.admitted,
        reason: decision.reason.map(Reason::name),
        retry_after_us: decision.retry_after.micros(),
        limit: decision.quota.map(|quota| quota.limit),
        remaining: decision.quota.map(|quota| quota.remaining),
        reset_after_us: decision.quota.map(|quota| quota.reset_after),
        breaker_open: decision.breaker_open,
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

fn finish(args: &Args, report: &Report) -> Result<(), Failure> {
    let stdout_taken = args.decisions.as_deref() == Some(Path::new("-"));
    // A closed stderr is no reason to fail.
    let _ = print::warnings(&mut io::stderr().lock(), report);
    if report.overall.requests + report.overall.undecided == 0 {
        let error = if report.bad_lines.count == 0 { "the trace is empty" } else { "the trace has no request in it that can be used" };
        return Err(Failure::new(error)
            .hint("it takes JSON lines like {\"at\":1767225600000000,\"user\":\"a\"} or an access log in the combined format"));
    }
    let text = if args.json { print::json(report, args.top) } else { print::table(report, args.top) };
    let written = if stdout_taken { writeln!(io::stderr().lock(), "{text}") } else { writeln!(io::stdout().lock(), "{text}") };
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(format!("the report cannot be written: {error}"))),
        _ => Ok(()),
    }
}
