//! The `loadtest` binary: see `loadtest --help`. One file per command.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program: its output is its purpose")]
#![expect(clippy::disallowed_methods, reason = "it measures how long real things take, and decides nothing")]

mod bare;
mod bench;
mod client;
mod process;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use loadtest::{access_log, plot};

/// Load tests for weir, and the traffic they are made with.
#[derive(Debug, Parser)]
#[command(name = "loadtest", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure CPU per decision, as ratios against the floor in the same run.
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
        Command::Bench(args) => bench::run(&args),
        Command::AccessLog(args) => access_log::run(&args).map_err(Failure::from),
        Command::Plot(args) => process::weir().and_then(|weir| plot::run(&args, &weir)),
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
