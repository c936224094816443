//! The `weir` binary: see `weir --help`.

use std::process::ExitCode;

/// A decision allocates a few dozen small things; the system's allocator took a third longer over them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    weir::cli::main()
}
