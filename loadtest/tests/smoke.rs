//! Every scenario in miniature, from the command line to the report: that it works, never how fast.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;

const SCENARIOS: [&str; 10] = ["burst", "compare", "flood", "growth", "latency", "neighbour", "outage", "reload", "soak", "throughput"];

/// Runs the program with the weir that was built beside it (without one it builds it), and returns what it printed.
#[track_caller]
fn loadtest(arguments: &[&str]) -> (bool, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_loadtest"));
    let weir = program.with_file_name("weir");
    let mut command = Command::new(program);
    command.args(arguments);
    if weir.exists() && matches!(arguments.first(), Some(&"run" | &"bench")) {
        command.arg("--weir").arg(weir);
    }
    let output = command.output().expect("the program starts");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}

fn json(path: &PathBuf) -> Json {
    serde_json::from_str(&std::fs::read_to_string(path).expect("the results")).expect("JSON")
}

fn figure<'a>(outcome: &'a Json, variant: &str, group: &str, name: &str) -> &'a Json {
    let named = |list: &'a Json, key: &str, name: &str| list.as_array().and_then(|list| list.iter().find(|item| item[key] == name));
    let summary = named(&outcome["variants"], "variant", variant).unwrap_or_else(|| panic!("no variant {variant} in {outcome}"));
    &named(&summary["groups"], "group", group).unwrap_or_else(|| panic!("no group {group} in {summary}"))["figures"][name]
}

#[test]
fn every_scenario_runs_and_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let (results, page) = (folder.path().join("results.json"), folder.path().join("report.html"));
    let mut arguments = vec!["run"];
    arguments.extend(SCENARIOS);
    arguments.extend(["--miniature", "--json", results.to_str().expect("a path"), "--html", page.to_str().expect("a path")]);
    let (well, text) = loadtest(&arguments);
    assert!(well, "{text}");

    let outcomes = json(&results);
    assert_eq!(outcomes.as_array().map(Vec::len), Some(SCENARIOS.len()), "{outcomes}");
    let html = std::fs::read_to_string(&page).expect("the report");
    for outcome in outcomes.as_array().expect("a list") {
        for summary in outcome["variants"].as_array().expect("variants") {
            let variant = summary["variant"].as_str().expect("a name");
            assert!(figure(outcome, variant, "all", "requests").as_f64() > Some(0.0), "{variant} asked nothing: {summary}");
            assert_eq!(figure(outcome, variant, "all", "failed"), 0.0, "{variant}: {summary}");
        }
        let question = outcome["question"].as_str().expect("a question");
        assert!(text.contains(question) && html.contains(question), "{question}");
    }
    assert!(html.contains("<svg"), "there is nothing to see");
    let asks_for = ["src=", "href=", "@import", "url(", "<script", "<link"];
    assert!(asks_for.iter().all(|word| !html.contains(word)), "the page needs something else");
}

/// No machine in it, so the figures are the same everywhere: this is what the three algorithms differ in.
#[test]
fn on_a_virtual_clock_hybrid_lets_bursts_through_and_holds_stormers() {
    let folder = tempfile::tempdir().expect("a folder");
    let results = folder.path().join("results.json");
    for (variant, bursts_pass, stormers_held) in
        [("token_bucket, virtual", true, false), ("sliding_window, virtual", false, true), ("hybrid, virtual", true, true)]
    {
        let (well, text) = loadtest(&["run", "compare", "--strict", "--variant", variant, "--json", results.to_str().expect("a path")]);
        assert!(well, "{text}");
        let outcome = &json(&results)[0];
        assert_eq!(figure(outcome, variant, "bursty", "bursts_whole") == &Json::from(1.0), bursts_pass, "{text}");
        assert_eq!(figure(outcome, variant, "stormer", "most_in_a_window").as_f64() <= Some(400.0), stormers_held, "{text}");
    }
}

#[test]
fn the_bench_measures_every_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let results = folder.path().join("rows.json");
    let few = ["--rounds", "1", "--requests", "200", "--users", "100", "--subjects", "200", "--window-limit", "20"];
    let mut arguments = vec!["bench", "--without-criterion", "--json", results.to_str().expect("a path")];
    arguments.extend(few);
    let (well, text) = loadtest(&arguments);
    assert!(well, "{text}");
    assert_eq!(json(&results).as_array().map(Vec::len), Some(14), "{text}");
}

#[test]
fn mistakes_are_said_and_nothing_is_started() {
    for (arguments, said) in [
        (&["run", "no-such-scenario"][..], "cannot be read"),
        (&["run", "outage", "--url", "http://127.0.0.1:9"], "needs servers of its own"),
        (&["run", "burst", "--url", "https://example.org"], "http://"),
        (&["run", "burst", "--variant", "nobody"], "no such variant"),
    ] {
        let (well, text) = loadtest(arguments);
        assert!(!well && text.contains(said), "{arguments:?}: {text}");
    }
}
