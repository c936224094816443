//! Load tests: starts the service and what it needs on loopback, asks, and prints what came back. Bounded in count and time.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program: its output is its purpose")]
// A load generator measures how long real things take.
#![expect(clippy::disallowed_methods, reason = "it measures how long real things take; it decides nothing")]

mod bare;
mod bench;
mod client;
mod process;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Load tests for weir.
#[derive(Debug, Parser)]
#[command(name = "loadtest")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// CPU per decision, as ratios against the floor measured in the same run.
    Bench(bench::Args),
    /// The floor: a bare actix handler that takes and gives JSON of the same size.
    #[command(hide = true)]
    Bare(bare::Args),
}

/// What went wrong, for a person.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Bare(args) => bare::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
