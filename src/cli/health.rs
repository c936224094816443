//! `weir health`: what a container's health check and a script ask, without a shell or curl beside the binary.

use std::io::{self, Write};
use std::time::Duration;

use super::Failure;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir health                                     ready for requests?
  weir health --live                              does the process answer at all?
  weir health --url http://127.0.0.1:8080 && echo 'go on'
  WEIR_URL=http://127.0.0.1:8080 weir health --timeout 1

Exit codes: 0 it is (also while it answers without its store, as the limits say it may), 1 it is not or does not answer, 2 wrong arguments")]
pub(super) struct Args {
    /// Where the service is.
    #[arg(long, env = "WEIR_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// Ask whether the process answers, not whether requests should be sent to it.
    #[arg(long)]
    live: bool,
    /// Seconds that the answer may take.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: u64,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let url = format!("{}/health/{}", args.url.trim_end_matches('/'), if args.live { "live" } else { "ready" });
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(args.timeout))).http_status_as_error(false).build().into();
    let failed = |error: ureq::Error| Failure::new(format!("{url}: {error}")).hint("is the service there? --url or WEIR_URL says where");
    let mut answer = agent.get(&url).call().map_err(failed)?;
    let status = answer.status();
    let text = answer.body_mut().read_to_string().map_err(failed)?;
    let parsed: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    let word = parsed.as_ref().and_then(|body| body["status"].as_str()).map(plain);
    match word {
        Some(word) if status.is_success() => {
            // Whoever closed the pipe goes by the exit code.
            let _ = writeln!(io::stdout(), "{word}");
            Ok(())
        }
        Some(word) => Err(Failure::new(format!("{url}: {word}"))),
        None => Err(Failure::new(format!("{url} answered {} without saying how it is", status.as_u16()))
            .hint("is that a weir? --url says where it is")),
    }
}

/// What another process said, for a terminal.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}
