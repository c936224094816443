//! The table of aims: CPU per decision as ratios against the floor in the same run, and what else was promised in numbers.
//!
//! Requests a second drift with the machine; CPU per request against the bare handler's, measured in turn, hardly does. Every
//! row is measured in every round, in turn with what it is compared with; what is printed is the median of the rounds' ratios.

mod measure;
mod table;

use std::path::PathBuf;

use crate::{Failure, block_on};
use measure::Bench;
use table::Row;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often everything is measured, in turn.
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
    /// Subjects that are there when the cost of many is measured.
    #[arg(long, default_value_t = 1_000_000)]
    subjects: u64,
    /// The large limit when the cost of a large limit is measured; at most 10 000 is exact.
    #[arg(long, default_value_t = 10_000)]
    window_limit: u64,
    /// The weir to start, instead of this repository's.
    #[arg(long, value_name = "FILE")]
    weir: Option<PathBuf>,
    /// Leave out what cargo must build and criterion measure: the pure decision against governor's.
    #[arg(long)]
    without_criterion: bool,
    /// Write the rows as JSON, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut bench = Bench::start(args)?;
    block_on(bench.fill())?;
    for round in 0..args.rounds.clamp(1, 100) {
        eprintln!("round {} of {}", round + 1, args.rounds);
        block_on(bench.round(round))?;
    }
    let bytes = block_on(bench.bytes())?;
    let mut rows = bench.rows(bytes);
    drop(bench);
    if !args.without_criterion {
        rows.push(Row::new("the pure decision (criterion)", "governor's keyed check", Some(1.5), pure_against_governor()?));
    }
    println!("{}", table::table(&rows));
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_string_pretty(&rows)?).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Runs the criterion bench and reads what it wrote: the pure hybrid decision / governor's keyed check.
fn pure_against_governor() -> Result<f64, Failure> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    eprintln!("criterion");
    let target = tempfile::tempdir()?;
    let status = std::process::Command::new(env!("CARGO"))
        .args(["bench", "--quiet", "--locked", "--bench", "decide"])
        .current_dir(root)
        .env("CRITERION_HOME", target.path())
        .stdout(std::process::Stdio::null())
        .status()?;
    if !status.success() {
        return Err("cargo bench --bench decide failed".into());
    }
    let time = |name: &str| -> Result<f64, Failure> {
        let text = std::fs::read_to_string(target.path().join(name).join("new/estimates.json"))?;
        let estimates: serde_json::Value = serde_json::from_str(&text)?;
        Ok(estimates.pointer("/median/point_estimate").and_then(serde_json::Value::as_f64).ok_or("criterion wrote no median")?)
    };
    Ok(time("decide_hybrid")? / time("governor_keyed")?)
}
