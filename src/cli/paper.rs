//! What is made of the command line's own declarations: `weir completions`, `weir man`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::{Cli, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir completions bash > weir.bash && . ./weir.bash
  weir completions zsh > _weir                    into a directory of $fpath
  weir completions fish > weir.fish               into ~/.config/fish/completions")]
pub(super) struct CompletionsArgs {
    /// For which shell.
    shell: Shell,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir man > weir.1 && man ./weir.1
  weir man --out man1                             weir.1 and one page for each command
  gzip -k man1/*.1                                as most systems keep them")]
pub(super) struct ManArgs {
    /// Write a page for each command into this directory; made when it is not there.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(super) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "weir", &mut script);
    print(&script)
}

pub(super) fn man(args: &ManArgs) -> Result<(), Failure> {
    // Built: sub-commands then know their whole names.
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    let Some(folder) = &args.out else { return print(&page(&cli)?) };
    let failed = |error: io::Error| Failure::new(format!("cannot write into {}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    pages(&cli, "weir", folder)
}

/// The page of a command and of all below it: `weir.1`, `weir-config.1`, `weir-config-get.1`.
fn pages(command: &clap::Command, name: &str, folder: &Path) -> Result<(), Failure> {
    let path = folder.join(format!("{name}.1"));
    fs::write(&path, page(command)?).map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
    command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
        .try_for_each(|below| pages(below, &format!("{name}-{}", below.get_name()), folder))
}

fn page(command: &clap::Command) -> Result<Vec<u8>, Failure> {
    let name = command.get_bin_name().unwrap_or("weir").replace(' ', "-");
    let mut page = Vec::new();
    let man = Man::new(command.clone().display_name(name));
    render(&man, command, &mut page).map_err(|error| Failure::new(format!("the page cannot be made: {error}")))?;
    Ok(page)
}

/// The sections that `Man::render` makes, with what stands after the help line by line: it would make one paragraph of the examples.
fn render(man: &Man, command: &clap::Command, page: &mut Vec<u8>) -> io::Result<()> {
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(page)?;
    }
    let Some(help) = command.get_after_help() else { return Ok(()) };
    let mut examples = Roff::new();
    examples.control("SH", ["EXAMPLES"]).control("nf", []);
    for line in help.to_string().lines().skip_while(|line| line.starts_with("Examples:")) {
        examples.text([roman(line)]);
    }
    examples.control("fi", []).to_writer(page)
}

/// Data goes to stdout; whoever closed it has read enough.
pub(super) fn print(data: &[u8]) -> Result<(), Failure> {
    match io::stdout().write_all(data) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(format!("cannot write: {error}"))),
        _ => Ok(()),
    }
}
