//! `weir reference`: every key of limit.yaml and every flag of the service, as Markdown, from the declarations that are checked against.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::CommandFactory;
use serde_json::Value;

use super::paper::print;
use super::{Cli, Failure};
use crate::config;
use crate::limit::Field;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir reference > reference.md
  weir reference | grep -i breaker")]
pub(super) struct Args {}

pub(super) fn run(_: &Args) -> Result<(), Failure> {
    print(reference().as_bytes())
}

fn reference() -> String {
    let mut text = String::from("### The fields of a policy\n\n| field | means | default | takes |\n| --- | --- | --- | --- |\n");
    for field in Field::ALL {
        let (about, default) = field.about();
        row(&mut text, &[&code(field.name()), about, default, &field.kind().to_string()]);
    }
    text.push_str("\n### The keys of limit.yaml\n\n| key | means | takes |\n| --- | --- | --- |\n");
    let schema = config::schema();
    keys(&mut text, &schema, "", &schema);
    text.push_str("\n### The flags of weir serve\n\n| flag | variable | default | means |\n| --- | --- | --- | --- |\n");
    let mut cli = Cli::command();
    cli.build();
    for flag in cli.find_subcommand("serve").into_iter().flat_map(clap::Command::get_arguments) {
        flag_row(&mut text, flag);
    }
    text
}

/// The keys of an object of the schema, each with all that stands before it: `routes[].match.path`.
fn keys(text: &mut String, object: &Value, before: &str, schema: &Value) {
    // By name: in which order an object of JSON comes depends on features of serde_json.
    let properties: BTreeMap<_, _> = object["properties"].as_object().into_iter().flatten().collect();
    for (name, property) in properties {
        key(text, property, &format!("{before}{name}"), schema);
    }
}

fn key(text: &mut String, property: &Value, path: &str, schema: &Value) {
    let about = property["description"].as_str().unwrap_or_default();
    let meant = resolve(property, schema);
    if meant == &schema["$defs"]["part"] {
        return row(text, &[&code(path), about, "fields of a policy"]);
    }
    row(text, &[&code(path), about, &takes(meant, schema)]);
    let (items, named) = (resolve(&meant["items"], schema), resolve(&meant["additionalProperties"], schema));
    keys(text, meant, &format!("{path}."), schema);
    keys(text, items, &format!("{path}[]."), schema);
    if named == &schema["$defs"]["tier"] {
        key(text, &named["properties"]["routes"], &format!("{path}.NAME.routes"), schema);
    }
}

/// What a reference within the schema points to.
fn resolve<'a>(value: &'a Value, schema: &'a Value) -> &'a Value {
    let name = value["$ref"].as_str().and_then(|place| place.strip_prefix("#/$defs/"));
    name.map_or(value, |name| &schema["$defs"][name])
}

/// What may be written there, in words.
fn takes(property: &Value, schema: &Value) -> String {
    if let Some(words) = property["enum"].as_array() {
        return format!("one of {}", words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "));
    }
    match property["type"].as_str() {
        Some("integer") => format!("a whole number from {} to {}", property["minimum"], property["maximum"]),
        Some("number") => format!("a number from {} to {}", property["minimum"], property["maximum"]),
        Some("array") => {
            let items = resolve(&property["items"], schema);
            let of = if items["properties"].is_object() { "a list of these" } else { "a list of strings" };
            format!("{of}, at most {}", property["maxItems"])
        }
        Some("object") if property["additionalProperties"].is_object() => {
            let named = resolve(&property["additionalProperties"], schema);
            let more = if named == &schema["$defs"]["tier"] { ", and `routes`" } else { "" };
            format!("by name, at most {}: fields of a policy{more}", property["maxProperties"])
        }
        Some("object") => "the keys below".to_owned(),
        _ => "a string".to_owned(),
    }
}

fn flag_row(text: &mut String, flag: &clap::Arg) {
    let Some(long) = flag.get_long().filter(|long| *long != "help" && !flag.is_hide_set()) else { return };
    let value = flag.get_value_names().into_iter().flatten().next().map(|name| format!(" {name}")).unwrap_or_default();
    let variable = flag.get_env().map(|name| code(&name.to_string_lossy())).unwrap_or_default();
    let default = flag.get_default_values().iter().map(|value| code(&value.to_string_lossy())).collect::<Vec<_>>().join(", ");
    let help = flag.get_long_help().or_else(|| flag.get_help()).map(ToString::to_string).unwrap_or_default();
    row(text, &[&code(&format!("--{long}{value}")), &variable, &default, &help]);
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

/// A row of a table; a bar or a line end in a cell would break it.
fn row(text: &mut String, cells: &[&str]) {
    for cell in cells {
        // Writing to a String cannot fail.
        let _ = write!(text, "| {} ", cell.replace('|', "\\|").replace('\n', " "));
    }
    text.push_str("|\n");
}
