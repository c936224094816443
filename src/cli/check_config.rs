//! `weir check-config`.

use std::io::{self, Write};
use std::path::PathBuf;

use super::Failure;
use crate::config;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir check-config config/limit.yaml
  weir check-config limit.yaml && cp limit.yaml /etc/weir/limit.yaml

Exit codes: 0 the file can be used (warnings go to stderr), 1 it cannot, 2 wrong arguments")]
pub(super) struct Args {
    /// The file to check.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[expect(clippy::print_stderr, reason = "warnings are for a person")]
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let loaded = config::load(&args.file).map_err(Failure::new)?;
    for warning in &loaded.warnings {
        eprintln!("warning: {}:{warning}", args.file.display());
    }
    // A closed pipe is nobody who wants to know.
    let _ = writeln!(io::stdout(), "{}: ok: defaults and {} tiers", args.file.display(), loaded.config.tiers.len());
    Ok(())
}
