//! The `loadtest` binary: see `loadtest --help`. One file per command.

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use loadtest::access_log;

/// Load tests for weir, and the traffic they are made with.
#[derive(Debug, Parser)]
#[command(name = "loadtest", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a made-up access log in nginx's combined format to stdout.
    AccessLog(access_log::Args),
}

#[expect(clippy::print_stderr, reason = "this is where failures reach a person")]
fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::AccessLog(args) => access_log::run(&args),
    };
    match done {
        // Whoever read it has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
        Ok(()) => ExitCode::SUCCESS,
    }
}
