//! `weir check-config`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::Failure;
use crate::config::{self, LoadCause, Loaded};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir check-config config/limit.yaml
  weir check-config limit.yaml && mv limit.yaml /etc/weir/limit.yaml
  weir check-config --print-schema > limit.schema.json

Exit codes: 0 the file can be used (warnings go to stderr), 1 it cannot, 2 wrong arguments")]
pub(super) struct Args {
    /// The file to check.
    #[arg(value_name = "FILE", required_unless_present = "print_schema")]
    file: Option<PathBuf>,
    /// Print the JSON Schema that editors check the file with, and do nothing else.
    #[arg(long, conflicts_with = "file")]
    print_schema: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(file) = &args.file {
        return check(file);
    }
    print(&format!("{:#}", config::schema()));
    Ok(())
}

#[expect(clippy::print_stderr, reason = "what is wrong is for a person")]
fn check(file: &Path) -> Result<(), Failure> {
    let shown = file.display();
    let loaded = config::load(file).map_err(|error| {
        let LoadCause::Mistakes(mistakes) = &error.cause else {
            return Failure::new(error);
        };
        for mistake in mistakes {
            eprintln!("error: {shown}:{mistake}");
            if let Some(hint) = &mistake.hint {
                eprintln!("hint: {hint}");
            }
        }
        let mistakes = if mistakes.len() == 1 { "1 mistake".to_owned() } else { format!("{} mistakes", mistakes.len()) };
        Failure::new(format!("{shown} cannot be used: {mistakes}"))
    })?;
    for warning in &loaded.warnings {
        eprintln!("warning: {shown}:{warning}");
    }
    print(&format!("{shown}: ok: {}\nsha256 {}", summary(&loaded), loaded.content_hash));
    Ok(())
}

/// What stands in the file, in one line.
fn summary(loaded: &Loaded) -> String {
    let config = &loaded.config;
    let count = |number: usize, one: &str| if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") };
    let own = config.routes.iter().filter(|route| route.limits.is_some()).count();
    let shared = if config.anonymous.shared.is_some() { "anonymous users share a policy" } else { "every anonymous address on its own" };
    [
        format!("defaults set {}", count(config.defaults.iter().count(), "field")),
        count(config.tiers.len(), "tier"),
        format!("{} ({own} with limits of their own)", count(config.routes.len(), "route")),
        shared.to_owned(),
        format!("on store failure {}", config.store.on_failure.name()),
    ]
    .join(", ")
}

/// Data on stdout; a closed pipe is nobody who wants to know.
fn print(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}
