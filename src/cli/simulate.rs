//! `weir simulate`.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::Failure;
use crate::clock::ManualClock;
use crate::config::{self, Config};
use crate::limit::{Decision, Micros, Reason, Units};
use crate::simulate::{Decider, Event, Item, Outcome, Replay, Report, Source, SubjectOf, UserReport};
use crate::store::{Ask, ErrorKind, MemoryStore, RedisOptions, RedisStore, Store, StoreError};

#[derive(Debug, clap::Args)]
#[command(after_help = "A trace is a file of JSON lines like {\"at\":1767225600000000,\"user\":\"alice\",\"cost\":1} (at: microseconds; cost: 1 unless
said; \"policy\":{...} instead of cost sets that user's override from then on), a file of test vectors, or an access log in
nginx's combined format. It may be gzipped.

Examples:
  weir simulate --config limit.yaml --trace /var/log/nginx/access.log.1
  zcat access.log.*.gz | weir simulate --config limit.yaml --trace -
  weir simulate --trace trace.jsonl --decisions decisions.jsonl
  weir simulate --trace trace.jsonl --store redis://127.0.0.1:6379   (under a prefix of its own, removed afterwards)")]
pub(super) struct Args {
    /// The limits to try [default: the built-in limits]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The trace; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Where state is kept: `memory`, or a Redis to try the script on
    #[arg(long, value_name = "memory|URL", default_value = "memory")]
    store: String,
    /// Write one JSON line per decision; `-` writes to standard output, and the report to standard error
    #[arg(long, value_name = "FILE")]
    decisions: Option<PathBuf>,
    /// Who is the subject of a line of an access log
    #[arg(long, value_enum, default_value = "user")]
    subject: Subject,
    /// How many users the table shows
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// The most subjects that the memory store remembers at once
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    max_subjects: u32,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Subject {
    /// The user where one is named, else the address
    User,
    /// The address, always
    Address,
}

/// One line of `--decisions`.
#[derive(Serialize)]
struct Line<'a> {
    at: Micros,
    user: &'a str,
    allowed: bool,
    reason: Option<&'static str>,
    retry_after_us: Option<Micros>,
    limit: Option<Units>,
    remaining: Option<Units>,
    reset_after_us: Option<Micros>,
    breaker_open: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let config = match &args.config {
        Some(path) => config::load(path).map_err(Failure::new)?.config,
        None => Config::default(),
    };
    let mut decisions = args.decisions.as_deref().map(create).transpose()?;
    let report = if args.store == "memory" {
        let store = MemoryStore::new(args.max_subjects as usize, Arc::new(ManualClock::default()));
        replay(args, Replay::new(config, &store), &mut decisions)?
    } else {
        let mut redis = Redis::open(&args.store)?;
        let report = replay(args, Replay::new(config, &mut redis), &mut decisions);
        redis.clean_up()?;
        report?
    };
    if let Some(out) = &mut decisions {
        quiet_when_nobody_reads(out.flush())?;
    }
    if report.overall.requests + report.undecided == 0 {
        let first = report.first_bad_lines.first().map(|(line, why)| format!("; line {line}: {why}")).unwrap_or_default();
        return Err(Failure::new(format!("no request in {}{first}", args.trace.display())).hint("see weir simulate --help for the formats that are understood"));
    }
    let text = if args.json { serde_json::to_string_pretty(&json(&report, args.top)).unwrap_or_default() } else { text(&report, args.top) };
    let to_stderr = args.decisions.as_deref() == Some(Path::new("-"));
    quiet_when_nobody_reads(if to_stderr { writeln!(io::stderr(), "{text}") } else { writeln!(io::stdout(), "{text}") })
}

/// Reads the whole trace through a replay.
fn replay<D: Decider>(args: &Args, mut replay: Replay<D>, decisions: &mut Option<Box<dyn Write>>) -> Result<Report, Failure> {
    let (input, progress) = open(&args.trace)?;
    let subject_of = match args.subject {
        Subject::User => SubjectOf::UserOrAddress,
        Subject::Address => SubjectOf::Address,
    };
    let mut source = Source::new(progress.wrap_read(input), subject_of).map_err(Failure::new)?;
    let mut report = Report::default();
    while let Some(item) = source.next_item().map_err(Failure::new)? {
        match item {
            Item::Bad { line, why } => report.add_bad(line, why),
            Item::Fresh(base) => replay.begin(base).map_err(Failure::new)?,
            Item::Event(event) => match replay.step(&event) {
                Ok(Outcome::Decided(decision)) => {
                    report.add(&event.user, &decision);
                    if let Some(out) = decisions {
                        quiet_when_nobody_reads(write_line(out, &event, &decision))?;
                    }
                }
                Ok(Outcome::Changed) => {}
                Ok(Outcome::Bad(why)) => report.add_bad(source.line(), why),
                Err(error) if error.kind == ErrorKind::Full => report.undecided += 1,
                Err(error) => return Err(Failure::new(error).hint("is the --store there? redis-cli -u URL ping")),
            },
        }
    }
    progress.finish_and_clear();
    report.late_lines = source.late_lines();
    report.times_were_spread = source.times_were_spread();
    Ok(report)
}

fn write_line(out: &mut dyn Write, event: &Event, decision: &Decision) -> io::Result<()> {
    let quota = decision.quota;
    let line = Line {
        at: event.at,
        user: &event.user,
        allowed: decision.admitted,
        reason: decision.reason.map(Reason::name),
        retry_after_us: decision.retry_after.micros(),
        limit: quota.map(|quota| quota.limit),
        remaining: quota.map(|quota| quota.remaining),
        reset_after_us: quota.map(|quota| quota.reset_after),
        breaker_open: decision.breaker_open,
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

/// The trace, and a progress bar where somebody watches.
fn open(path: &Path) -> Result<(Box<dyn Read>, ProgressBar), Failure> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin().lock()), ProgressBar::hidden()));
    }
    let cannot = |error| Failure::new(format!("cannot read {}: {error}", path.display()));
    let file = File::open(path).map_err(cannot)?;
    let size = file.metadata().map_err(cannot)?.len();
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{bar:40} {percent}% {binary_bytes_per_sec} {eta}").unwrap_or_else(|_| ProgressStyle::default_bar());
    Ok((Box::new(file), ProgressBar::with_draw_target(Some(size), target).with_style(style)))
}

fn create(path: &Path) -> Result<Box<dyn Write>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(BufWriter::new(io::stdout())));
    }
    let file = File::create(path).map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
    Ok(Box::new(BufWriter::new(file)))
}

/// `… | head` closes the pipe: then there is nothing more to do.
fn quiet_when_nobody_reads(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.map_err(|error| Failure::new(format!("cannot write: {error}"))),
    }
}

/// A Redis under a prefix of this replay's own.
struct Redis {
    runtime: tokio::runtime::Runtime,
    store: RedisStore,
}

impl Redis {
    fn open(url: &str) -> Result<Self, Failure> {
        if !url.contains("://") {
            return Err(Failure::new(format!("no such store: {url:?}")).hint("give memory, or redis://host:port"));
        }
        let options = RedisOptions { url: url.to_owned(), prefix: format!("weir-simulate-{}", uuid::Uuid::new_v4().simple()), deadline: Duration::from_secs(10) };
        let store = RedisStore::new(options).map_err(Failure::new)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))?;
        Ok(Self { runtime, store })
    }

    fn clean_up(&self) -> Result<(), Failure> {
        self.runtime.block_on(self.store.delete_all()).map_err(|error| Failure::new(format!("could not remove the keys of this replay: {error}")).hint("they begin with weir-simulate- and expire by themselves"))
    }
}

impl Decider for &mut Redis {
    fn decide(&mut self, ask: Ask<'_>) -> Result<Decision, StoreError> {
        self.runtime.block_on(self.store.decide(ask))
    }
}

fn text(report: &Report, top: usize) -> String {
    let (users, others) = report.busiest(top);
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["user", "requests", "admitted", "success", "by bucket", "by window", "for good", "longest wait"]);
    for (user, counts) in users {
        table.add_row(row(&printable(user), counts));
    }
    if others > 0 || report.other_users.requests > 0 {
        table.add_row(["…"]);
    }
    table.add_row(row("all", &report.overall));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut lines = vec![table.trim_fmt()];
    let mut say = |text: String| lines.push(text);
    if others > 0 {
        say(format!("{others} more users are not shown (--top)"));
    }
    if report.other_users.requests > 0 {
        say(format!("users beyond the first 100000 are counted together: {} requests, {} admitted", report.other_users.requests, report.other_users.admitted));
    }
    if report.overall.shadow_refused > 0 {
        say(format!("{} requests were admitted by mode shadow and would have been refused", report.overall.shadow_refused));
    }
    if report.undecided > 0 {
        say(format!("{} requests were not decided: the memory store was full of active subjects (--max-subjects)", report.undecided));
    }
    if report.times_were_spread {
        say("times in the log are whole seconds of completion: requests were put in order and spread evenly within each second".to_owned());
    }
    if report.late_lines > 0 {
        say(format!("{} lines came more than 10 s too late and were put later than they happened", report.late_lines));
    }
    if report.bad_lines > 0 {
        say(format!("{} lines could not be understood:", report.bad_lines));
        for (line, why) in &report.first_bad_lines {
            say(format!("  line {line}: {}", printable(why)));
        }
    }
    lines.join("\n")
}

fn row(name: &str, counts: &UserReport) -> [String; 8] {
    [
        name.to_owned(),
        counts.requests.to_string(),
        counts.admitted.to_string(),
        format!("{:.2} %", 100.0 * counts.success_rate()),
        counts.refused_by_bucket.to_string(),
        counts.refused_by_window.to_string(),
        counts.refused_for_good.to_string(),
        format!("{:.1} s", counts.longest_wait_seconds),
    ]
}

fn json(report: &Report, top: usize) -> serde_json::Value {
    let (users, others) = report.busiest(top);
    let counts = |counts: &UserReport| {
        let mut json = serde_json::to_value(counts).unwrap_or_default();
        json["success_rate"] = counts.success_rate().into();
        json
    };
    serde_json::json!({
        "overall": counts(&report.overall),
        "users": users.iter().map(|(user, own)| (user.to_string(), counts(own))).collect::<serde_json::Map<_, _>>(),
        "users_not_shown": others,
        "other_users": counts(&report.other_users),
        "undecided": report.undecided,
        "bad_lines": report.bad_lines,
        "first_bad_lines": report.first_bad_lines,
        "late_lines": report.late_lines,
        "times_were_spread": report.times_were_spread,
    })
}

/// Text from a trace may hold anything; a terminal gets no control characters, and no endless names.
fn printable(text: &str) -> String {
    text.chars().take(120).map(|c| if c.is_control() { '�' } else { c }).collect()
}
