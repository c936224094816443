//! `weir simulate`, as it is run.
#![expect(clippy::expect_used, reason = "test code: what it expects is its claim, in helpers too")]

mod support;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value as Json;
use support::redis::RedisServer;
use support::vectors::{What, all};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

fn weir(args: &[&str]) -> Output {
    Command::new(WEIR).arg("simulate").args(args).output().expect("weir starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is UTF-8")
}

fn stored(directory: &tempfile::TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.path().join(name);
    std::fs::write(&path, content).expect("a temporary file can be written");
    path
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// The report of a replay that must succeed, and what it said on stderr.
#[track_caller]
fn report(args: &[&str]) -> (Json, String) {
    let output = weir(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    (serde_json::from_slice(&output.stdout).expect("the report is JSON"), text(&output.stderr).to_owned())
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(content).expect("memory can be written");
    packer.finish().expect("memory can be written")
}

#[test]
fn every_vector_is_decided_as_it_expects() {
    every_vector_on("memory");
}

/// Through the script in a real Redis, under a prefix of the replay's own, of which nothing is left.
#[test]
fn every_vector_is_decided_as_it_expects_on_redis_and_nothing_stays_behind() {
    let server = RedisServer::start();
    let mut connection = server.connect();
    redis::cmd("SET").arg("somebody").arg("else's").exec(&mut connection).expect("SET");
    every_vector_on(&server.url());
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).expect("KEYS");
    assert_eq!(keys, ["somebody"]);
}

#[test]
fn a_redis_that_is_not_there_is_an_error_with_a_hint() {
    let directory = directory();
    let trace = stored(&directory, "t", r#"{"at":1,"user":"a"}"#);
    for (store, said) in
        [("redis://127.0.0.1:1", "store"), ("nonsense", "neither memory nor a redis"), ("gopher://x", "neither memory nor a redis")]
    {
        let output = weir(&["--trace", path(&trace), "--store", store]);
        let stderr = text(&output.stderr);
        assert!(
            output.status.code() == Some(1) && stderr.contains("error:") && stderr.contains("hint:") && stderr.contains(said),
            "{store}: {stderr}"
        );
    }
}

fn every_vector_on(store: &str) {
    let directory = directory();
    let decisions = directory.path().join("decisions");
    let mut given = String::new();
    for file in ["named.jsonl", "random.jsonl"] {
        let trace = format!("{}/tests/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
        report(&["--trace", &trace, "--store", store, "--decisions", path(&decisions)]);
        given += &std::fs::read_to_string(&decisions).expect("decisions were written");
    }
    let mut given = given.lines();
    for vector in all() {
        for event in &vector.events {
            let What::Request(_, expected) = &event.what else { continue };
            let line: Json = serde_json::from_str(given.next().expect("a decision for every request")).expect("JSON");
            assert_eq!((line["at"].as_i64(), line["user"].as_str()), (Some(event.at), Some(event.user.as_str())));
            for (field, value) in expected {
                assert_eq!(&line[field], value, "{:?} at {}: {field}", vector.name, event.at);
            }
        }
    }
    assert_eq!(given.next(), None, "no decision without a request");
}

#[test]
fn bad_lines_are_counted_and_named_and_the_others_are_replayed() {
    let directory = directory();
    let mut trace = Vec::new();
    for line in [
        r#"{"at":1,"user":"a"}"#,
        r#"{"at":1,"user":"a","cost":-1}"#,
        r#"{"at":1,"user":"a","cost":1.5}"#,
        r#"{"at":1,"user":"a","policy":{"window_limt":5}}"#,
        r#"{"at":1,"user":"a","policy":{"tokens_per_second":0}}"#,
        "rubbish",
        "",
        r#"{"at":2,"user":"a"}"#,
    ] {
        trace.extend_from_slice(line.as_bytes());
        trace.push(b'\n');
    }
    trace.extend_from_slice(b"\xff\xfe\n");
    trace.extend(std::iter::repeat_n(b'x', 1_000_000));
    let (report, said) = report(&["--trace", path(&stored(&directory, "t", trace))]);
    assert_eq!(report["overall"]["requests"], 2);
    let bad = &report["bad_lines"];
    assert_eq!(bad["count"], 7);
    let numbers: Vec<_> = bad["first"].as_array().expect("a list").iter().map(|bad| bad["line"].as_u64().expect("a number")).collect();
    assert_eq!(numbers, [2, 3, 4, 5, 6, 9, 10]);
    for problem in [
        "line 2: cost: -1",
        "line 3: cost: 1.5",
        "line 4: policy: window_limt: unknown field; did you mean window_limit?",
        "line 5: policy: tokens_per_second",
        "line 10: longer than",
    ] {
        assert!(said.contains(problem), "{said:?} does not say {problem:?}");
    }
}

#[test]
fn only_the_first_twenty_bad_lines_are_named() {
    let directory = directory();
    let trace = "{\n".repeat(100) + "{\"at\":1,\"user\":\"a\"}\n";
    let (report, said) = report(&["--trace", path(&stored(&directory, "t", trace))]);
    assert_eq!(report["bad_lines"]["count"], 100);
    assert_eq!(said.matches("warning: line ").count(), 20);
    assert!(said.contains("100 of 101 lines are bad") && said.contains("80 more"), "{said}");
}

#[test]
fn a_trace_without_a_request_is_an_error_with_a_hint() {
    let directory = directory();
    for (content, error) in [("", "the trace is empty"), ("\n\n", "the trace is empty"), ("junk\n", "no request in it that can be used")] {
        let output = weir(&["--trace", path(&stored(&directory, "t", content))]);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        let said = text(&output.stderr);
        assert!(said.contains("error: ") && said.contains(error) && said.contains("\nhint: "), "{content:?}: {said}");
    }
}

#[test]
fn what_cannot_be_opened_is_an_error_with_a_hint() {
    let directory = directory();
    let cut = &gzip("{\"at\":1,\"user\":\"a\"}\n".repeat(1_000).as_bytes())[..60];
    let cut = stored(&directory, "cut", cut);
    let here = path(directory.path());
    for args in
        [&["--trace", "/nonexistent/file"][..], &["--trace", here], &["--trace", path(&cut)], &["--trace", path(&cut), "--store", "memroy"]]
    {
        let output = weir(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let said = text(&output.stderr);
        assert!(said.contains("error: ") && said.contains("\nhint: "), "{args:?}: {said}");
    }
    assert_eq!(weir(&[]).status.code(), Some(2), "usage");
}

#[test]
fn an_override_holds_from_its_line_on_and_replaces_an_earlier_one() {
    let directory = directory();
    let trace = r#"{"at":1000000,"user":"a"}
{"at":1000001,"user":"a","policy":{"mode":"block"}}
{"at":1000002,"user":"a"}
{"at":1000002,"user":"b"}
{"at":1000003,"user":"a","policy":{"bucket_capacity":5}}
{"at":1000004,"user":"a"}
"#;
    let (report, _) = report(&["--trace", path(&stored(&directory, "t", trace))]);
    assert_eq!(report["users"][0]["user"], "a");
    assert_eq!(report["users"][0]["tally"]["reasons"]["blocked"], 1);
    assert_eq!(report["overall"]["admitted"], 3);
}

#[test]
fn stdin_gzip_and_plain_give_the_same_decisions() {
    let directory = directory();
    let trace: String = (0..500).fold(String::new(), |mut trace, index| {
        let _ = writeln!(trace, r#"{{"at":{},"user":"a"}}"#, index * 1_000);
        trace
    });
    let plain = weir(&["--trace", path(&stored(&directory, "t", &trace)), "--decisions", "-"]).stdout;
    // Two members, as when rotation appends one archive to another; a name that says nothing.
    let (first, second) = trace.split_at(trace.find("{\"at\":250000").expect("it is there"));
    let packed = [gzip(first.as_bytes()), gzip(second.as_bytes())].concat();
    let packed = weir(&["--trace", path(&stored(&directory, "t.txt", packed)), "--decisions", "-"]).stdout;
    assert_eq!(text(&plain).lines().count(), 500);
    assert_eq!(plain, packed);

    let mut child = Command::new(WEIR)
        .args(["simulate", "--trace", "-", "--decisions", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("weir starts");
    child.stdin.take().expect("piped").write_all(trace.as_bytes()).expect("weir reads");
    assert_eq!(child.wait_with_output().expect("weir ends").stdout, plain);
}

#[test]
fn a_reader_that_has_read_enough_ends_it_quietly() {
    let directory = directory();
    let trace = stored(&directory, "t", "{\"at\":1,\"user\":\"a\"}\n".repeat(50_000));
    let mut child = Command::new(WEIR)
        .args(["simulate", "--decisions", "-", "--trace", path(&trace)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("weir ends");
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_full_store_leaves_newcomers_undecided_and_says_so() {
    let directory = directory();
    let trace: String = (0..50).fold(String::new(), |mut trace, index| {
        let _ = writeln!(trace, r#"{{"at":1000000,"user":"u{index}"}}"#);
        trace
    });
    let (report, said) = report(&["--trace", path(&stored(&directory, "t", trace)), "--max-subjects", "10"]);
    assert_eq!((&report["overall"]["requests"], &report["overall"]["undecided"]), (&10.into(), &40.into()));
    assert!(said.contains("40 requests are undecided (store full)"), "{said}");
}

#[test]
fn the_table_names_the_most_refused_and_sums_up_the_others() {
    let directory = directory();
    let mut trace = String::new();
    for user in 0..30 {
        for _ in 0..(100 + user) {
            let _ = writeln!(trace, r#"{{"at":1000000,"user":"u{user}"}}"#);
        }
    }
    let output = weir(&["--trace", path(&stored(&directory, "t", trace)), "--top", "2"]);
    let table = text(&output.stdout);
    let at = |name: &str| table.find(name).unwrap_or_else(|| panic!("{name} is not in {table}"));
    assert!(at(" u29 ") < at(" u28 ") && at(" u28 ") < at("(others: 28 users)") && at("(others: 28 users)") < at("overall: 30 users"));
    assert!(!table.contains(" u27 "));
}

/// A made-up access log.
fn access_log(lines: u64, seed: u64) -> Vec<u8> {
    let mut log = Vec::new();
    loadtest::access_log::write(&mut log, &loadtest::access_log::Args { lines, seed }).expect("memory can be written");
    log
}

#[test]
fn an_access_log_is_replayed_and_the_storm_is_refused() {
    let directory = directory();
    let log = stored(&directory, "access.log", access_log(20_000, 7));
    let (report, said) = report(&["--trace", path(&log)]);
    assert_eq!(
        (&report["overall"]["requests"], &report["bad_lines"]["count"], &report["late_lines"]),
        (&20_000.into(), &0.into(), &0.into()),
        "seed 7: {said}"
    );
    assert_eq!(report["users"][0]["user"], "ip:203.0.113.99", "seed 7");
    assert!(report["overall"]["reasons"]["bucket"].as_u64() > Some(100), "seed 7: {report}");
    assert!(report["notes"].to_string().contains("spread evenly within each second"));
    for crawler in ["ip:192.0.2.10", "ip:198.51.100.20", "ip:203.0.113.30", "ip:2001:db8:bee::/64"] {
        assert!(report["users"].to_string().contains(crawler), "seed 7: {crawler} is not in {report}");
    }
}

#[test]
fn an_access_log_is_the_same_for_the_same_seed_and_so_are_its_decisions() {
    assert!(access_log(12_000, 1) == access_log(12_000, 1), "seed 1");
    assert!(access_log(12_000, 1) != access_log(12_000, 2), "seeds 1 and 2");
    let directory = directory();
    let plain = stored(&directory, "a", access_log(12_000, 1));
    let packed = stored(&directory, "b", gzip(&access_log(12_000, 1)));
    let decisions = |log: &Path| weir(&["--trace", path(log), "--decisions", "-"]).stdout;
    assert!(decisions(&plain) == decisions(&packed), "seed 1");
}

#[test]
fn the_subject_may_be_the_address_although_there_is_a_user() {
    let directory = directory();
    let line = "192.0.2.1 - alice [01/Jan/2026:00:00:00 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\"\n";
    let log = stored(&directory, "a", line);
    assert_eq!(report(&["--trace", path(&log)]).0["users"][0]["user"], "alice");
    assert_eq!(report(&["--trace", path(&log), "--subject", "address"]).0["users"][0]["user"], "ip:192.0.2.1");
}

/// The most memory that a replay of `lines` lines from a pipe had at once, KiB.
fn peak_kib(lines: u64) -> u64 {
    let mut child = Command::new(WEIR)
        .args(["simulate", "--trace", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("weir starts");
    let status = format!("/proc/{}/status", child.id());
    let mut input = child.stdin.take().expect("piped");
    input.write_all(&access_log(lines, 3)).expect("weir reads");
    // It waits for more input now, so its memory can be looked at; all but the last pipeful is replayed.
    let status = std::fs::read_to_string(status).expect("a Linux /proc");
    drop(input);
    assert!(child.wait().expect("weir ends").success());
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    peak.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn memory_does_not_grow_with_the_length_of_a_log() {
    let (short, long) = (peak_kib(100_000), peak_kib(500_000));
    assert!(long < short + 16 * 1024, "seed 3: {short} KiB for 100 000 lines, {long} KiB for 500 000");
}
