//! `weir token`.

use std::io::{self, Write};

use clap::builder::PossibleValue;
use clap::{Subcommand, ValueEnum};

use super::{Failure, plain};
use crate::http::{Role, Token};

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

impl ValueEnum for Role {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Viewer, Self::Operator]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Self::Viewer => "look",
            Self::Operator => "look and change",
        };
        Some(PossibleValue::new(self.name()).help(help))
    }
}

fn name(text: &str) -> Result<String, String> {
    plain(text, "_-.@")
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let Command::New { name, role } = &args.command;
    let (token, secret) = Token::generate(name, *role);
    let shown = writeln!(io::stdout(), "token: {secret}\nline for the tokens file:\n{token}");
    shown.map_err(|error| Failure::new(format!("cannot write: {error}")))
}
