//! The `weir` binary: see `weir --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::cli::main()
}
