//! The JSON Schema that editors use: current, right about the example, and wrong about nothing that the service takes.

use std::fs;
use std::path::Path;

use boon::{Compiler, Schemas};
use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};
use serde_json::{Map, Value, json};

/// YAML as an editor sees it: plain words are numbers, truth values or nothing where YAML 1.2 says so.
fn value(events: &mut Parser<'_, StrInput<'_>>) -> Option<Value> {
    loop {
        return Some(match events.next()?.ok()?.0 {
            Event::Scalar(text, ScalarStyle::Plain, ..) => serde_json::from_str(&text).unwrap_or_else(|_| match &*text {
                "" | "~" => Value::Null,
                text => json!(text),
            }),
            Event::Scalar(text, ..) => json!(text),
            Event::SequenceStart(..) => {
                let mut list = Vec::new();
                while !matches!(events.peek()?.ok()?.0, Event::SequenceEnd) {
                    list.push(value(events)?);
                }
                events.next();
                Value::Array(list)
            }
            Event::MappingStart(..) => {
                let mut map = Map::new();
                while !matches!(events.peek()?.ok()?.0, Event::MappingEnd) {
                    let key = match value(events)? {
                        Value::String(key) => key,
                        other => other.to_string(),
                    };
                    map.insert(key, value(events)?);
                }
                events.next();
                Value::Object(map)
            }
            Event::StreamEnd | Event::Alias(_) => return None,
            _ => continue,
        });
    }
}

fn json(text: &str) -> Option<Value> {
    value(&mut Parser::new_from_str(text))
}

/// What the schema says to a file.
fn verdict(schema: &Value, file: &Value) -> Result<(), String> {
    let mut schemas = Schemas::new();
    let mut compiler = Compiler::new();
    compiler.add_resource("limit.schema.json", schema.clone()).expect("a schema");
    let index = compiler.compile("limit.schema.json", &mut schemas).unwrap_or_else(|error| panic!("{error:#}"));
    schemas.validate(file, index).map_err(|error| format!("{error:#}"))
}

/// When this fails: `weir check-config --print-schema > config/limit.schema.json`.
#[test]
fn the_schema_that_is_checked_in_is_current() {
    let path = Path::new(super::ROOT).join("config/limit.schema.json");
    let found: Value = serde_json::from_str(&fs::read_to_string(path).expect("the schema")).expect("JSON");
    assert!(found == weir::config::schema(), "stale: weir check-config --print-schema > config/limit.schema.json");
}

#[test]
fn the_schema_takes_the_example() {
    let file = json(&fs::read_to_string(super::example()).expect("the example")).expect("YAML");
    verdict(&weir::config::schema(), &file).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_schema_refuses_what_it_can_see_to_be_wrong() {
    // What only the whole can show, or only the text: names that nobody knows, layers that do not fit, doubled keys, encodings.
    let beyond = |name: &str| {
        let words = [
            "together_",
            "twice",
            "alias",
            "anchor",
            "tag",
            "file_",
            "tier_route",
            "equal",
            "host_bits",
            "mapped",
            "prefix",
            "stars",
            "too_deep",
            "key_is_a_list",
            "tier_name_truth_value",
            "tier_name_number",
            "number_exponent",
            "cost_exponent",
            "float_nan",
            "routes_too_many",
            "star_without",
            "number_nothing",
            "space",
            "plus",
            "identity_network_address",
        ];
        words.iter().any(|word| name.contains(word))
    };
    let schema = weir::config::schema();
    let mut taken = Vec::new();
    let mut refused = 0;
    for path in super::bad_files() {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if beyond(&name) {
            continue;
        }
        let file = json(&fs::read_to_string(path.with_extension("yaml")).expect("a bad file"));
        match file.map(|file| verdict(&schema, &file)) {
            Some(Ok(())) => taken.push(name),
            Some(Err(_)) | None => refused += 1,
        }
    }
    assert!(taken.is_empty(), "{taken:#?}");
    assert!(refused > 60, "only {refused} files were tried");
}
