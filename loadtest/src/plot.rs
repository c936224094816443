//! Graphs of what `weir simulate` decides over time: of the three algorithms on the traces of the documents, or of limits of one's own on
//! a trace of one's own.
//!
//! Every decision in a graph was made by the real binary; here they are only counted by the second and drawn. The same build gives
//! the same bytes, so a test can hold the graphs in the documents against it.

mod figure;
mod traces;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use figure::Figure;

/// A trace may reach over so many seconds: two weeks, and a graph of more shows nothing.
const MOST_SECONDS: usize = 14 * 86_400;
const US: u64 = 1_000_000;

/// What went wrong, for a person.
pub type Failure = Box<dyn Error + Send + Sync>;

/// What to draw.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  loadtest plot --out docs/plots                                    the graphs of the documents
  loadtest plot --trace access.log --config limit.yaml --out plots  one's own
  loadtest plot --trace access.log --config limit.yaml --config tighter.yaml --out plots")]
pub struct Args {
    /// The directory for the graphs; made when it is not there.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// A trace or an access log of one's own, as weir simulate takes it. Without it: the traces of the documents, each decided by the
    /// three algorithms.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// The limits to try on it; given more than once they are drawn below one another. Without it the built-in ones.
    #[arg(long, value_name = "FILE", requires = "trace")]
    pub config: Vec<PathBuf>,
}

/// What was decided, by the second from the first request on.
#[derive(Debug, Clone)]
struct Run {
    name: String,
    seconds: Vec<Second>,
}

/// Requests in a second.
#[derive(Debug, Clone, Copy, Default)]
struct Second {
    offered: u32,
    admitted: u32,
    /// Whether a decision in it met an open breaker, where all are about one user.
    storm: bool,
}

/// Draws into the directory, and names each file on stdout.
///
/// # Errors
/// When the trace or the limits cannot be used, or a file cannot be written.
pub fn run(args: &Args, weir: &str) -> Result<(), Failure> {
    fs::create_dir_all(&args.out).map_err(|error| format!("cannot make {}: {error}", args.out.display()))?;
    for (name, svg) in draw(args, weir)? {
        let path = args.out.join(format!("{name}.svg"));
        fs::write(&path, svg).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        writeln!(std::io::stdout(), "{}", path.display())?;
    }
    Ok(())
}

/// The graphs as SVG, by name. `weir` is the path of the binary.
///
/// # Errors
/// When the trace or the limits cannot be used.
pub fn draw(args: &Args, weir: &str) -> Result<Vec<(String, String)>, Failure> {
    if let Some(trace) = &args.trace {
        return Ok(vec![("trace".to_owned(), own(trace, &args.config, weir)?)]);
    }
    traces::ALL
        .iter()
        .map(|trace| {
            let runs = traces::ALGORITHMS
                .iter()
                .map(|algorithm| simulate(weir, algorithm, &["--trace", "-"], trace.lines(algorithm)))
                .collect::<Result<Vec<_>, _>>()?;
            let svg = Figure { title: trace.title, runs: &runs, window: Some((traces::WINDOW_SECONDS, traces::WINDOW_LIMIT)) }.svg()?;
            Ok((trace.name.to_owned(), svg))
        })
        .collect()
}

fn own(trace: &Path, configs: &[PathBuf], weir: &str) -> Result<String, Failure> {
    let path = trace.to_str().ok_or("the path of the trace is not UTF-8")?;
    let mut runs = Vec::new();
    if configs.is_empty() {
        runs.push(simulate(weir, "built-in limits", &["--trace", path], String::new())?);
    }
    for config in configs {
        let config = config.to_str().ok_or("the path of the limits is not UTF-8")?;
        runs.push(simulate(weir, config, &["--trace", path, "--config", config], String::new())?);
    }
    Figure { title: path, runs: &runs, window: None }.svg()
}

/// Replays and counts. `input` is what stands on stdin.
fn simulate(weir: &str, name: &str, arguments: &[&str], input: String) -> Result<Run, Failure> {
    let mut child = Command::new(weir)
        .args(["simulate", "--decisions", "-", "--json"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {weir}: {error}"))?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    // All three at once: a full pipe that nobody reads would stop both sides.
    let feeding = std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
    let reporting = std::thread::spawn(move || stderr.map_or(Ok(String::new()), std::io::read_to_string));
    let counted = stdout.map_or_else(|| Err("no output".into()), |stdout| count(BufReader::new(stdout)));
    // What it did not read any more is no failure of its own: its exit code says what happened.
    let _ = feeding.join();
    let said = reporting.join().ok().and_then(Result::ok).unwrap_or_default();
    if !child.wait()?.success() {
        return Err(format!("weir simulate {}: {}", arguments.join(" "), said.trim()).into());
    }
    Ok(Run { name: name.to_owned(), seconds: counted? })
}

fn count(decisions: impl BufRead) -> Result<Vec<Second>, Failure> {
    let mut counted: BTreeMap<u64, Second> = BTreeMap::new();
    // Of many users some breaker is always open: that says something of one alone.
    let (mut one, mut many) = (None, false);
    for line in decisions.lines() {
        let decision: serde_json::Value = serde_json::from_str(&line?)?;
        let at = decision["at"].as_u64().ok_or("a decision without a time")?;
        let second = counted.entry(at / US).or_default();
        second.offered += 1;
        second.admitted += u32::from(decision["allowed"] == true);
        second.storm |= decision["breaker_open"] == true;
        many |= *one.get_or_insert_with(|| decision["user"].clone()) != decision["user"];
    }
    let (Some((first, _)), Some((last, _))) = (counted.first_key_value(), counted.last_key_value()) else {
        return Err("no decisions".into());
    };
    let (first, span) = (*first, usize::try_from(last - first)? + 1);
    if span > MOST_SECONDS {
        return Err(format!("the trace reaches over {span} seconds; a graph takes {MOST_SECONDS}").into());
    }
    let mut seconds = vec![Second::default(); span];
    for (at, second) in counted {
        seconds[usize::try_from(at - first)?] = Second { storm: second.storm && !many, ..second };
    }
    Ok(seconds)
}
