//! `weir config`: an operator's hand on a running service.

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde_json::{Map, Value};

use super::Failure;
use crate::identity::percent_encode;

/// An answer takes milliseconds; a service that takes this long is not there.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir config get alice
  weir config set alice tokens_per_second=10 --for 7200 --reason 'bulk import tonight'
  weir config unset alice tokens_per_second
  weir config list --prefix al
  weir config export > overrides.jsonl && weir config import overrides.jsonl

The token is taken from WEIR_TOKEN, or from admin-token in the data directory of a service on this machine.")]
pub(super) struct Args {
    /// Where the service is.
    #[arg(long, env = "WEIR_URL", value_name = "URL", default_value = "http://127.0.0.1:8080", global = true)]
    url: String,
    /// A token for its admin API. (A command line can be read by every user of the machine: better the variable.)
    #[arg(long, env = "WEIR_TOKEN", value_name = "TOKEN", hide_env_values = true, global = true)]
    token: Option<String>,
    /// Where the token is that the service made at its start.
    #[arg(long, env = "WEIR_DATA_DIR", value_name = "DIR", default_value = "weir-data", global = true)]
    data_dir: PathBuf,
    /// Print the service's answer as it is.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what is in force for a user, and where each value comes from.
    #[command(after_help = "Examples:
  weir config get alice
  weir config get alice --route search --json")]
    Get {
        /// The user's id.
        user: String,
        #[command(flatten)]
        about: About,
    },
    /// Set fields of a user's override; shows before and after.
    #[command(after_help = "Examples:
  weir config set alice tokens_per_second=10 bucket_capacity=500
  weir config set alice tokens_per_second=10 --for 7200 --reason 'bulk import tonight'
  weir config set alice window_limit=50 --route search
  weir config set mallory mode=block --reason 'ticket 4711'")]
    Set {
        /// The user's id.
        user: String,
        /// FIELD=VALUE, as in tokens_per_second=10 mode=block.
        #[arg(required = true, value_name = "FIELD=VALUE")]
        fields: Vec<String>,
        #[command(flatten)]
        about: About,
        /// For so many seconds; then it ends by itself.
        #[arg(long = "for", value_name = "SECONDS")]
        seconds: Option<f64>,
        /// Why, for the audit.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Give fields back to what they inherit; without fields, all of the override.
    #[command(after_help = "Examples:
  weir config unset alice tokens_per_second
  weir config unset alice                         everything that was set, temporary or not")]
    Unset {
        /// The user's id.
        user: String,
        /// Which fields; all when none is named.
        #[arg(value_name = "FIELD")]
        fields: Vec<String>,
        #[command(flatten)]
        about: About,
    },
    /// List the overrides.
    #[command(after_help = "Examples:
  weir config list
  weir config list --prefix al --json")]
    List {
        /// Only users whose id begins so.
        #[arg(long, default_value = "")]
        prefix: String,
    },
    /// Print all standing overrides as JSON lines.
    #[command(after_help = "Examples:
  weir config export > overrides.jsonl")]
    Export,
    /// Read them back; a bad line changes nothing.
    #[command(after_help = "Examples:
  weir config import overrides.jsonl
  weir config export | grep -v mallory | weir config import -")]
    Import {
        /// JSON lines, as `weir config export` prints them; `-` reads standard input.
        file: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct About {
    /// The override for this route.
    #[arg(long)]
    route: Option<String>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let service = Service::new(args)?;
    match &args.command {
        Command::Get { user, about } => show(args, &service.call("GET", "config", &about.query(user), None)?),
        Command::Set { user, fields, about, seconds, reason } => {
            let mut body = Map::new();
            for field in fields {
                let (name, value) = field.split_once('=').ok_or_else(|| Failure::new(format!("{field:?} is not FIELD=VALUE")))?;
                body.insert(name.to_owned(), serde_json::from_str(value).ok().filter(Value::is_number).unwrap_or_else(|| value.into()));
            }
            body.extend(seconds.map(|seconds| ("expires_in_seconds".to_owned(), seconds.into())));
            body.extend(reason.as_ref().map(|reason| ("reason".to_owned(), reason.as_str().into())));
            service.change(args, &about.query(user), "POST", Some(body.into()))
        }
        Command::Unset { user, fields, about } if fields.is_empty() => service.change(args, &about.query(user), "DELETE", None),
        Command::Unset { user, fields, about } => {
            let body: Map<String, Value> = fields.iter().map(|field| (field.clone(), Value::Null)).collect();
            service.change(args, &about.query(user), "POST", Some(body.into()))
        }
        Command::List { prefix } => list(args, &service, prefix),
        Command::Export => print(service.text("GET", "export", &[], None)?.trim_end()),
        Command::Import { file } => {
            let text = read(file)?;
            show(args, &service.parsed(&service.text("POST", "import", &[], Some(text))?)?)
        }
    }
}

impl About {
    fn query<'a>(&'a self, user: &'a str) -> Vec<(&'static str, &'a str)> {
        let mut query = vec![("user_id", user)];
        query.extend(self.route.as_deref().map(|route| ("route", route)));
        query
    }
}

struct Service {
    agent: ureq::Agent,
    base: String,
    token: String,
}

impl Service {
    fn new(args: &Args) -> Result<Self, Failure> {
        let made = args.data_dir.join("admin-token");
        let token = match &args.token {
            Some(token) => token.clone(),
            None => std::fs::read_to_string(&made).map_err(|error| {
                Failure::new(format!("no token: {} cannot be read: {error}", made.display()))
                    .hint("give one in WEIR_TOKEN, or the service's --data-dir")
            })?,
        };
        let agent = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false).build().into();
        Ok(Self { agent, base: args.url.trim_end_matches('/').to_owned(), token: token.trim().to_owned() })
    }

    fn text(&self, method: &str, path: &str, query: &[(&str, &str)], body: Option<String>) -> Result<String, Failure> {
        let url = format!("{}/admin/rate-limit/{path}", self.base);
        let failed =
            |error: ureq::Error| Failure::new(format!("{url}: {error}")).hint("is the service there? --url or WEIR_URL says where");
        let request = ureq::http::Request::builder()
            .method(method)
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", self.token));
        let mut address = url.clone();
        for (at, (name, value)) in query.iter().enumerate() {
            address.extend([if at == 0 { "?" } else { "&" }, name, "="]);
            percent_encode(value, &mut address);
        }
        let request = request.uri(address);
        let request = request.body(body.unwrap_or_default()).map_err(|error| Failure::new(format!("{url}: {error}")))?;
        let mut answer = self.agent.run(request).map_err(failed)?;
        let text = answer.body_mut().read_to_string().map_err(failed)?;
        if answer.status().is_success() {
            return Ok(text);
        }
        let detail = serde_json::from_str::<Value>(&text).ok().and_then(|problem| problem["detail"].as_str().map(str::to_owned));
        Err(Failure::new(format!("the service answered {}: {}", answer.status().as_u16(), detail.unwrap_or(text))))
    }

    fn parsed(&self, text: &str) -> Result<Value, Failure> {
        serde_json::from_str(text).map_err(|error| Failure::new(format!("{}: the answer is not JSON: {error}", self.base)))
    }

    fn call(&self, method: &str, path: &str, query: &[(&str, &str)], body: Option<Value>) -> Result<Value, Failure> {
        self.parsed(&self.text(method, path, query, body.map(|body| body.to_string()))?)
    }

    /// Makes a change and shows before and after.
    fn change(&self, args: &Args, query: &[(&str, &str)], method: &str, body: Option<Value>) -> Result<(), Failure> {
        let before = self.call("GET", "config", query, None)?;
        let after = self.call(method, "config", query, body)?;
        if args.json || !io::stdout().is_terminal() {
            return show(args, &after);
        }
        let mut table = table(["field", "before", "after"]);
        for (field, now) in after["effective"].as_object().into_iter().flatten() {
            let was = &before["effective"][field];
            if was != now {
                table.add_row([field.clone(), setting(was), setting(now)]);
            }
        }
        print(&table.trim_fmt())?;
        warn(&after)
    }
}

fn show(args: &Args, answer: &Value) -> Result<(), Failure> {
    let Some(effective) = answer["effective"].as_object().filter(|_| !args.json && io::stdout().is_terminal()) else {
        return print(&serde_json::to_string_pretty(answer).unwrap_or_default());
    };
    let mut table = table(["field", "value", "from"]);
    for (field, value) in effective {
        table.add_row([field.clone(), plain(&value["value"]), plain(&value["source"])]);
    }
    print(&format!("{} (version {})\n{}", plain(&answer["user_id"]), answer["version"], table.trim_fmt()))?;
    warn(answer)
}

fn list(args: &Args, service: &Service, prefix: &str) -> Result<(), Failure> {
    let mut cursor: Option<String> = None;
    loop {
        let mut query = vec![("prefix", prefix), ("limit", "1000")];
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page = service.call("GET", "config", &query, None)?;
        for item in page["overrides"].as_array().into_iter().flatten() {
            print(&if args.json { item.to_string() } else { format!("{}  {}", plain(&item["user_id"]), item["override"]) })?;
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return Ok(()),
        }
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let done = if path == Path::new("-") {
        io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(path).map(|read| text = read)
    };
    done.map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))?;
    Ok(text)
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    table
}

fn setting(value: &Value) -> String {
    format!("{} ({})", plain(&value["value"]), plain(&value["source"]))
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), |text| text.chars().filter(|c| !c.is_control()).collect())
}

fn warn(answer: &Value) -> Result<(), Failure> {
    for warning in answer["warnings"].as_array().into_iter().flatten() {
        writeln!(io::stderr(), "warning: {}", plain(warning)).map_err(|error| Failure::new(format!("cannot write: {error}")))?;
    }
    Ok(())
}

/// Data goes to stdout; whoever closed it has read enough.
fn print(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(format!("cannot write: {error}"))),
        _ => Ok(()),
    }
}
