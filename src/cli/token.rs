//! `weir token`.

use std::io::{self, Write};

use clap::{Subcommand, ValueEnum};
use sha2::{Digest, Sha256};

use super::Failure;
use crate::identity::hex;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir token new --name alice --role operator
  weir token new --name dashboard --role viewer")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a token for the admin API, and the line for the tokens file.
    #[command(after_help = "Examples:
  weir token new --name alice --role operator
  weir token new --name alice --role operator | tail -n 1 >> tokens    the line, without the token

The token is shown this once; the line holds only its hash.")]
    New {
        /// Whose token it is: the name stands in the audit.
        #[arg(long, value_parser = name)]
        name: String,
        /// What it may do.
        #[arg(long, value_enum)]
        role: Role,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    /// Look.
    Viewer,
    /// Look and change.
    Operator,
}

fn name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'@');
    if (1..=64).contains(&text.len()) && text.bytes().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("1 to 64 of A-Z a-z 0-9 _ - . @".to_owned())
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let Command::New { name, role } = &args.command;
    let token = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    let role = match role {
        Role::Viewer => "viewer",
        Role::Operator => "operator",
    };
    let hash = hex(&Sha256::digest(&token));
    let shown = writeln!(io::stdout(), "token: {token}\nline for the tokens file:\n{name} {role} {hash}");
    shown.map_err(|error| Failure::new(format!("cannot write: {error}")))
}
