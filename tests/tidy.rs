//! Rules about the code that no lint holds: who may use whom, what is pure, how long a file may be, that twins are pairs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// A file that wants to grow beyond this is two things.
const MOST_LINES: usize = 400;

/// A module of the crate and the modules of the crate that it may name. (`clock`'s types may be passed anywhere.)
const MAY_USE: &[(&str, &[&str])] = &[
    ("limit", &[]),
    ("identity", &[]),
    ("clock", &["limit"]),
    ("store", &["limit", "identity", "clock"]),
    ("config", &["limit", "identity", "clock"]),
    ("overrides", &["limit", "identity", "store", "clock"]),
    ("limiter", &["limit", "identity", "store", "config", "telemetry", "clock", "overrides", "top"]),
    ("top", &["limit", "identity", "store"]),
    ("middleware", &["limit", "identity", "config", "limiter", "http"]),
    ("simulate", &["limit", "identity", "store", "config", "clock"]),
    ("telemetry", &["limit", "store", "config", "clock", "overrides"]),
];

/// A crate that only these places may use: elsewhere its types do not appear.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("actix_web", &["http", "middleware.rs", "server.rs", "cli/serve.rs", "telemetry"]),
    ("redis", &["store/redis", "overrides/redis", "top/redis"]),
    ("bb8_redis", &["store/redis", "overrides/redis"]),
    ("notify", &["config/watch"]),
    ("saphyr_parser", &["config/raw"]),
    ("redb", &["overrides/embedded"]),
    ("clap", &["cli"]),
    ("opentelemetry", &["telemetry/traces.rs"]),
    ("tracing_opentelemetry", &["telemetry/traces.rs"]),
    ("clap_complete", &["cli/paper"]),
    ("clap_mangen", &["cli/paper"]),
    ("ureq", &["cli", "telemetry/traces.rs"]),
];

/// Places without async, I/O, clocks, logging, or serde.
const PURE: &[&str] = &["limit", "identity", "config/compile", "http/headers.rs", "http/original.rs"];
const IMPURE: &[&str] = &[
    "async ",
    ".await",
    "std::fs",
    "std::io",
    "std::net::Tcp",
    "std::time::Instant",
    "SystemTime",
    "tracing::",
    "tokio::",
    "serde",
    "crate::clock",
    "println!",
];

fn files(below: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(ROOT).join(below)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("a folder entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no {ending} files below {below}");
    found
}

/// The path below `src/` or `lua/`, with forward slashes.
fn name(path: &Path, below: &str) -> String {
    path.strip_prefix(Path::new(ROOT).join(below)).expect("below it").to_string_lossy().replace('\\', "/")
}

/// The lines that are code: no comments, nothing behind `#[cfg(test)] mod tests {`.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn is_in(name: &str, place: &str) -> bool {
    name == place || name == format!("{place}.rs") || name.starts_with(&format!("{place}/"))
}

#[test]
fn modules_use_only_what_they_may() {
    let mut broken = Vec::new();
    for path in files("src", "rs") {
        let name = name(&path, "src");
        let text = code(&fs::read_to_string(&path).expect("a source file"));
        for (module, allowed) in MAY_USE.iter().filter(|(module, _)| is_in(&name, module)) {
            let own = module.trim_end_matches(".rs");
            let used: BTreeSet<&str> = text
                .split("crate::")
                .skip(1)
                .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(""))
                .collect();
            let wrong = used.into_iter().filter(|used| !used.is_empty() && *used != own && !allowed.contains(used));
            broken.extend(wrong.map(|used| format!("src/{name} uses {used}")));
        }
        for (library, places) in ONLY_IN {
            let uses = [format!("use {library}::"), format!(" {library}::"), format!("({library}::"), format!("<{library}::")]
                .iter()
                .any(|pattern| text.contains(pattern.as_str()));
            if uses && !places.iter().any(|place| is_in(&name, place)) {
                broken.push(format!("src/{name} uses the crate {library}, which only {places:?} may"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn what_decides_is_pure() {
    let mut broken = Vec::new();
    for path in files("src", "rs") {
        let name = name(&path, "src");
        if !PURE.iter().any(|place| is_in(&name, place)) {
            continue;
        }
        let text = code(&fs::read_to_string(&path).expect("a source file"));
        broken.extend(IMPURE.iter().filter(|word| text.contains(**word)).map(|word| format!("src/{name} has {word:?} in it")));
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn no_source_file_is_longer_than_a_thought() {
    let too_long: Vec<_> = ["src", "loadtest/src", "lua"]
        .iter()
        .flat_map(|folder| files(folder, if *folder == "lua" { "lua" } else { "rs" }))
        .filter_map(|path| {
            let lines = fs::read_to_string(&path).expect("a source file").lines().count();
            (lines > MOST_LINES).then(|| format!("{}: {lines} lines", path.display()))
        })
        .collect();
    assert!(too_long.is_empty(), "over {MOST_LINES} lines: {too_long:#?}");
}

#[test]
fn every_lua_file_has_a_twin_and_names_it() {
    for path in files("lua", "lua") {
        let name = name(&path, "lua");
        let twin = format!("src/limit/{}.rs", name.trim_end_matches(".lua").trim_end_matches("_commit"));
        assert!(Path::new(ROOT).join(&twin).exists(), "lua/{name} has no twin {twin}");
        let text = fs::read_to_string(&path).expect("a script");
        assert!(text.contains(&twin), "lua/{name} does not name its twin {twin}");
        let rust = fs::read_to_string(Path::new(ROOT).join(&twin)).expect("the twin");
        if !name.ends_with("_commit.lua") {
            assert!(rust.contains(&format!("lua/{name}")), "{twin} does not name its twin lua/{name}");
        }
    }
}

#[test]
fn the_script_is_assembled_of_every_lua_file() {
    let assembly = fs::read_to_string(Path::new(ROOT).join("src/store/redis/script.rs")).expect("the assembly");
    for path in files("lua", "lua") {
        let name = name(&path, "lua");
        assert!(assembly.contains(&format!("lua/{name}\")")), "lua/{name} is in no script");
    }
}

#[test]
fn no_test_is_ignored_and_none_sleeps() {
    for folder in ["src", "tests", "loadtest/src"] {
        for path in files(folder, "rs") {
            if path.ends_with("tidy.rs") {
                continue;
            }
            let text = fs::read_to_string(&path).expect("a source file");
            for word in ["#[ignore", "thread::sleep"] {
                assert!(!text.contains(word), "{} has {word}", path.display());
            }
        }
    }
}
