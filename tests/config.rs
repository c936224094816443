//! `limit.yaml`: what is taken, what is refused and with which words, and which value wins.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "config/hostile.rs"]
mod hostile;
#[path = "config/layers.rs"]
mod layers;
#[path = "config/schema.rs"]
mod schema;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use weir::config::{Config, LoadCause, Mistake, OnFailure, load};
use weir::limit::{Algorithm, Field, Value};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn example() -> PathBuf {
    Path::new(ROOT).join("config/limit.yaml")
}

/// The bad files, by name without an ending; each has its `.expected`.
fn bad_files() -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(Path::new(ROOT).join("tests/config/bad")).expect("the folder of bad files");
    entries.map(|entry| entry.expect("an entry").path().with_extension("")).collect()
}

#[track_caller]
fn config(text: &str) -> Config {
    Config::from_yaml(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}")).0
}

#[track_caller]
fn warnings(text: &str) -> Vec<String> {
    let (_, warnings) = Config::from_yaml(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
    warnings.iter().map(Mistake::to_string).collect()
}

#[track_caller]
fn mistakes(text: &str) -> Vec<String> {
    Config::from_yaml(text).expect_err("a bad file").iter().map(Mistake::to_string).collect()
}

/// Case 85, and every other way to write a file that does not say what was meant.
#[test]
fn each_bad_file_is_refused_with_exactly_its_message() {
    let bad = bad_files();
    assert!(bad.len() > 100, "only {} bad files", bad.len());
    let mut wrong = Vec::new();
    for name in bad {
        let file = name.with_extension("yaml");
        let expected = fs::read_to_string(name.with_extension("expected"));
        let expected = expected.unwrap_or_else(|error| panic!("{}.expected: {error}", name.display()));
        assert!(file.exists(), "{} has no file beside it", name.with_extension("expected").display());
        let found = load(&file).map_or_else(|error| error.to_string(), |_| "taken".to_owned());
        let found = found.replace(&format!("{}/", file.parent().expect("a folder").display()), "");
        if found.trim_end() != expected.trim_end() {
            wrong.push(format!("{}\nexpected:\n{expected}\nfound:\n{found}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_example_is_taken_without_a_warning() {
    let loaded = load(&example()).expect("the example");
    assert_eq!(loaded.warnings, []);
    assert_eq!(loaded.content_hash.len(), 64);
    let config = loaded.config;
    assert_eq!(config.defaults.get(Field::BucketCapacity), Some(Value::Number(100.0)));
    assert_eq!(config.tiers.keys().map(|name| &**name).collect::<Vec<_>>(), ["partner", "trial"]);
    assert_eq!(config.tiers["partner"].routes["search"].get(Field::WindowLimit), Some(Value::Number(400.0)));
    assert_eq!(config.routes.iter().map(|route| &*route.name).collect::<Vec<_>>(), ["search", "export"]);
    assert!(config.anonymous.shared.is_some());
    assert_eq!(config.identity, Config::default().identity, "the example writes the built-in identity out");
    assert_eq!(config.on_failure(config.route("/export/all", "GET")), OnFailure::Deny);
    assert_eq!(config.on_failure(config.route("/search", "GET")), OnFailure::Local);
}

#[test]
fn all_mistakes_of_a_file_are_shown_at_once_in_its_order() {
    let text = "defaults:\n  bucket_capacity: 1e3\n  capcity: 5\n  window_seconds: .inf\ntiers:\n  gold: {algorithm: on, mode: block}\n  Silver: {}\n\
                routes:\n  - match: {path: s}\n    cost: 0\nidentity: {ipv6_prefix: 31}\nstroe: {}\nstore: {on_failure: &a open}\n";
    let found = mistakes(text);
    let places: Vec<_> = found.iter().map(|mistake| mistake.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        places,
        [
            "2:20: defaults.bucket_capacity:",
            "3:3: defaults.capcity:",
            "4:19: defaults.window_seconds:",
            "6:21: tiers.gold.algorithm:",
            "7:3: tiers.Silver:",
            "9:5: routes[0]:",
            "9:19: routes[0].match.path:",
            "10:11: routes[0].cost:",
            "11:25: identity.ipv6_prefix:",
            "12:1: stroe:",
            "13:21: an",
            "13:21: store.on_failure:",
        ],
        "{found:#?}"
    );
}

#[test]
fn a_value_that_was_not_read_makes_no_second_mistake() {
    // Were the capacity taken with the built-in rate, it would take too long to fill.
    let found = mistakes("defaults:\n  tokens_per_second: 1e3\n  bucket_capacity: 1000000000\n");
    assert_eq!(found.len(), 1, "{found:#?}");
}

#[test]
fn a_bad_combination_is_shown_once_and_not_again_for_every_tier_and_route() {
    let text = "defaults: {bucket_capacity: 1000000000}\ntiers: {gold: {mode: shadow}, free: {}}\n\
                routes:\n  - {name: s, match: {path: /s}, limits: {mode: enforce}}\n";
    assert_eq!(mistakes(text).len(), 1);
}

#[test]
fn a_tiers_part_for_a_route_may_mend_what_the_route_alone_would_break() {
    let text = "tiers:\n  gold:\n    bucket_capacity: 1000000\n    routes: {slow: {bucket_capacity: 10}}\n\
                routes:\n  - {name: slow, match: {path: /s}, limits: {tokens_per_second: 0.1}}\n";
    assert_eq!(warnings(text), [""; 0]);
}

#[test]
fn what_an_operator_would_not_expect_is_a_warning_at_its_place() {
    let below = |whom: &str| {
        format!(
            "window_limit 200 is below tokens_per_second x window_seconds = 600: while the breaker is open a user gets less than a calm one is promised{whom}"
        )
    };
    assert_eq!(
        warnings("defaults: {tokens_per_second: 10, window_limit: 200}\ntiers: {gold: {mode: shadow}}\n"),
        [format!("1:11: defaults: {}", below(""))]
    );
    assert_eq!(
        warnings("defaults: {window_limit: 200}\ntiers:\n  gold: {tokens_per_second: 10}\n"),
        [format!("3:9: tiers.gold: {}", below(""))]
    );
    assert_eq!(
        warnings("tiers:\n  gold: {tokens_per_second: 10}\nroutes:\n  - {name: s, match: {path: /s}, limits: {window_limit: 200}}\n"),
        [format!("4:42: routes[0].limits: {}", below(" (for users of tier gold)"))]
    );
    assert_eq!(
        warnings("identity: {trusted_peers: [0.0.0.0/0]}\n"),
        ["1:28: identity.trusted_peers[0]: 0.0.0.0/0: everybody may say who the user is"]
    );
    assert_eq!(
        warnings("routes:\n  - {name: dear, match: {path: /d}, cost: 101}\n"),
        ["2:43: routes[0].cost: a request that costs 101 can never be admitted: it is above the limits of its route"]
    );
    let routes = "routes:\n  - {name: all, match: {path: /a/*}}\n  - {name: one, match: {path: /a/b, methods: [GET]}}\n";
    assert_eq!(warnings(routes), ["3:5: routes[1]: never reached: the route all in line 2 takes all of its requests"]);
}

#[test]
fn numbers_are_plain_decimals_and_words_may_stand_in_quotes() {
    let config = config("defaults: {tokens_per_second: 0.5, \"bucket_capacity\": 12, algorithm: 'token_bucket', breaker_ratio: 1.50}\n");
    let policy = config.policy(None, &[]).expect("a policy");
    assert_eq!((policy.tokens_per_second(), policy.bucket_capacity(), policy.algorithm()), (0.5, 12, Algorithm::TokenBucket));
    assert_eq!(config.defaults.get(Field::BreakerRatio), Some(Value::Number(1.5)));
}

#[test]
fn files_of_other_systems_and_json_are_taken() {
    let lines = config("defaults:\n  bucket_capacity: 7\n");
    assert_eq!(config("\u{feff}defaults:\r\n  bucket_capacity: 7\r\n"), lines);
    assert_eq!(config("---\ndefaults:\n  bucket_capacity: 7\n...\n"), lines);
    assert_eq!(config("{\"defaults\": {\"bucket_capacity\": 7}}"), lines);
}

#[test]
fn the_first_route_that_matches_wins() {
    let config = config(
        "routes:\n  - {name: read, match: {path: /item/*, methods: [GET, HEAD]}}\n  - {name: item, match: {path: /item/*}}\n\
         \x20 - {name: pictures, match: {path: \"*.png\"}}\n  - {name: rest, match: {path: \"*\", methods: [GET]}}\n",
    );
    let name = |path: &str, method: &str| config.route(path, method).map(|route| &*route.name);
    assert_eq!(name("/item/7", "GET"), Some("read"));
    assert_eq!(name("/item/7?page=2", "HEAD"), Some("read"));
    assert_eq!(name("/item/7", "DELETE"), Some("item"));
    assert_eq!(name("/item/7.png", ""), Some("item"), "without a method only routes for all methods match");
    assert_eq!(name("/a.png", "POST"), Some("pictures"));
    assert_eq!(name("/a?b=.png", "POST"), None, "the query is no part of the path");
    assert_eq!(name("/item", "GET"), Some("rest"));
    assert_eq!(name("/item", "get"), None, "methods are compared as they are");
}

#[test]
fn a_file_that_is_none_is_said_to_be_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = load(folder.path()).expect_err("a folder").to_string();
    assert!(error.ends_with("cannot be read: it is not a regular file"), "{error}");
    let error = load(&folder.path().join("limit.yaml")).expect_err("nothing");
    assert!(matches!(error.cause, LoadCause::Unreadable(_)), "{error}");
}

#[test]
fn the_same_bytes_have_the_same_hash_and_others_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let hash = |text: &str| {
        let path = folder.path().join("limit.yaml");
        fs::write(&path, text).expect("written");
        load(&path).expect("a right file").content_hash
    };
    assert_eq!(hash("defaults: {bucket_capacity: 7}\n"), hash("defaults: {bucket_capacity: 7}\n"));
    assert_ne!(hash("defaults: {bucket_capacity: 7}\n"), hash("defaults: {bucket_capacity:  7}\n"));
}

#[test]
fn check_config_exits_with_0_or_1_and_says_why() {
    let check = |file: &Path| {
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("check-config").arg(file).output().expect("weir runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, stdout, stderr) = check(&example());
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains("ok: defaults set 5 fields, 2 tiers, 2 routes (1 with limits of their own)"), "{stdout}");

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("limit.yaml");
    fs::write(&file, "defaults: {tokens_per_second: 10, window_limit: 200}\n").expect("written");
    let (code, _, stderr) = check(&file);
    assert_eq!(code, Some(0));
    assert!(stderr.starts_with(&format!("warning: {}:1:11: defaults: window_limit 200", file.display())), "{stderr}");

    fs::write(&file, "defaults: {capcity: 10, window_limit: 0}\n").expect("written");
    let (code, stdout, stderr) = check(&file);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    let file = file.display();
    assert_eq!(
        stderr,
        format!(
            "error: {file}:1:12: defaults.capcity: unknown key\nhint: did you mean bucket_capacity?\n\
             error: {file}:1:39: defaults.window_limit: 0 is not a whole number from 1 to 1000000000\nhint: to refuse everything use mode: block\n\
             error: {file} cannot be used: 2 mistakes\n"
        )
    );
}
