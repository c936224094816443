//! The `loadtest` binary: see `loadtest --help`. One file per command.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program: its output is its purpose")]
#![expect(clippy::disallowed_methods, reason = "it measures how long real things take, and decides nothing")]

mod bare;
mod bench;
mod client;
mod floor;
mod live;
mod plan;
mod process;
mod report;
mod result;
mod run;
mod scenario;
mod servers;
mod stats;
mod tally;
mod virtual_time;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use loadtest::{access_log, plot};
use tokio::signal::unix::{SignalKind, signal};

/// Load tests for weir, and the traffic they are made with.
#[derive(Debug, Parser)]
#[command(name = "loadtest", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run scenarios and say what came of them.
    Run(run::Args),
    /// The scenarios that there are, each with its question.
    List,
    /// Measure the table of aims: CPU per decision as ratios against the floor in the same run, and the rest.
    Bench(bench::Args),
    /// Write a made-up access log in nginx's combined format to stdout.
    AccessLog(access_log::Args),
    /// Draw what `weir simulate` decides over time, as SVG.
    Plot(plot::Args),
    /// The floor: a bare actix handler that takes and gives JSON of the same size.
    #[command(hide = true)]
    Bare(bare::Args),
}

/// What went wrong, for a person.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::List => list(),
        Command::Bench(args) => bench::run(&args),
        Command::AccessLog(args) => access_log::run(&args).map_err(Failure::from),
        Command::Plot(args) => process::weir(None).and_then(|weir| plot::run(&args, &weir)),
        Command::Bare(args) => bare::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read it has read enough.
        Err(error) if error.downcast_ref().is_some_and(|error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs `work` on one thread beside this one. A signal ends it, and with it the servers that it started.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            done = work => done,
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
            _ = terminated.recv() => Err("terminated".into()),
        }
    })
}

fn list() -> Result<(), Failure> {
    for scenario in run::list()? {
        println!("{:<12} {}", scenario.name, scenario.question);
    }
    Ok(())
}
