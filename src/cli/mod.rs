//! The command line: arguments in, exit code out. The only place that reads the environment.
//!
//! Data goes to stdout, everything else to stderr. A failure is one `error:` line and, where there is something to do about
//! it, a `hint:` line.

mod check_config;
mod config;
mod health;
mod logs;
mod paper;
mod reference;
mod serve;
mod simulate;
mod store;
mod token;

use std::fmt;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A rate limiter for many instances together: may this user do this now, and if not, when?
#[derive(Debug, Parser)]
#[command(name = "weir", version = crate::VERSION, about, max_term_width = 100)]
#[command(after_help = "Examples:
  weir serve --config config/limit.yaml           run it
  weir check-config config/limit.yaml             before a change of the limits
  weir simulate --config config/limit.yaml --trace access.log
  weir config set alice tokens_per_second=10 --for 7200 --reason 'bulk import tonight'

weir COMMAND --help says more, with examples. Exit codes: 0 done, 1 it failed, 2 wrong arguments")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service.
    Serve(Box<serve::Args>),
    /// Check a limit.yaml and say everything that is wrong with it.
    CheckConfig(check_config::Args),
    /// Replay a trace or an access log and say who would have been refused.
    Simulate(simulate::Args),
    /// Look at and change the limits of single users of a running service.
    Config(config::Args),
    /// Make tokens for the admin API.
    Token(token::Args),
    /// Ask a running service whether it is well.
    Health(health::Args),
    /// Print completions for a shell.
    Completions(paper::CompletionsArgs),
    /// Print the manual page.
    Man(paper::ManArgs),
    /// Print the reference of limit.yaml and of the service's flags, as Markdown.
    Reference(reference::Args),
}

/// Why a command failed, for a person.
#[derive(Debug)]
pub struct Failure {
    /// What went wrong: lowercase, no full stop.
    pub error: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure that explains itself.
    pub fn new(error: impl fmt::Display) -> Self {
        Self { error: error.to_string(), hint: None }
    }

    /// With what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A name of an operator's choice, of which the characters stand in keys, files and logs as they are.
fn plain(text: &str, marks: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
    if (1..=64).contains(&text.len()) && text.chars().all(fits) {
        return Ok(text.to_owned());
    }
    let marks: Vec<String> = marks.chars().map(String::from).collect();
    Err(format!("1 to 64 of A-Z a-z 0-9 {}", marks.join(" ")))
}

/// Runs the command that the process was started with. Exit codes: 0; 1, it failed; 2, the arguments are wrong (clap's own).
#[must_use]
pub fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve::run(*args),
        Command::CheckConfig(args) => check_config::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Health(args) => health::run(&args),
        Command::Completions(args) => paper::completions(&args),
        Command::Man(args) => paper::man(&args),
        Command::Reference(args) => reference::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report(&failure);
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "this is where failures reach a person")]
fn report(failure: &Failure) {
    eprintln!("error: {}", failure.error);
    if let Some(hint) = &failure.hint {
        eprintln!("hint: {hint}");
    }
}
