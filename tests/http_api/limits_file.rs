//! limit.yaml and the real binary: believed peers, routes, reload, all over TCP.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::support::server::{PATIENCE, Process, Raw};

fn write(path: &std::path::Path, capacity: u32) {
    let text = format!("defaults: {{bucket_capacity: {capacity}, tokens_per_second: 0.001}}\n");
    fs::write(path, text).unwrap();
}

/// The limit that a peek of `user` shows.
fn limit(raw: &mut Raw, user: &str) -> serde_json::Value {
    raw.check("", &json!({"user": user, "cost": 0}).to_string()).unwrap().json()["limit"].clone()
}

/// Asks until it is so.
fn eventually(mut is_so: impl FnMut() -> bool, what: &str) {
    let start = weir::clock::monotonic();
    while !is_so() {
        assert!(weir::clock::elapsed(start) < PATIENCE, "{what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn metrics(process: &Process) -> String {
    let mut raw = Raw::connect(process.address);
    raw.send("GET /metrics HTTP/1.1\r\nHost: weir\r\n\r\n");
    raw.reply().unwrap().body
}

#[test]
fn a_saved_file_is_in_force_a_bad_one_is_not_and_no_bucket_is_refilled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limit.yaml");
    write(&path, 5);
    let process = Process::start(&["--config", path.to_str().unwrap()]);
    let mut raw = Raw::connect(process.address);
    for _ in 0..5 {
        assert_eq!(raw.check("", r#"{"user":"u"}"#).unwrap().status, 200);
    }
    write(&path, 50);
    eventually(|| limit(&mut raw, "v") == 50, "the new limit is in force");
    assert_eq!(raw.check("", r#"{"user":"u"}"#).unwrap().status, 429, "a raised limit refills no bucket");
    fs::write(&path, "defaults: {capcity: 7}\n").unwrap();
    eventually(|| metrics(&process).contains(r#"weir_config_reloads_total{result="failed"} 1"#), "the failure is counted");
    assert_eq!(limit(&mut raw, "v"), 50, "the last good one stays");
    let text = metrics(&process);
    assert!(
        text.contains("weir_config_last_reload_successful 0") && text.contains(r#"weir_config_reloads_total{result="applied"} 1"#),
        "{text}"
    );
    write(&path, 6);
    eventually(|| limit(&mut raw, "v") == 6, "and the next good one applies");
    assert!(metrics(&process).contains("weir_config_last_reload_successful 1"));
    process.signal("HUP");
    assert_eq!(limit(&mut raw, "v"), 6, "a signal to reload ends nobody");
    process.signal("TERM");
    let (status, log) = process.wait();
    assert!(status.success());
    assert!(log.iter().any(|line| line.contains("capcity") && line.contains("bucket_capacity")), "the log says what and where: {log:?}");
}

#[test]
fn a_bad_file_at_the_start_is_an_error_and_exit_1() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limit.yaml");
    fs::write(&path, "defaults: {mode: on}\n").unwrap();
    let output =
        std::process::Command::new(env!("CARGO_BIN_EXE_weir")).args(["serve", "--config", path.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("error:") && said.contains("defaults.mode"), "{said}");
}

/// Case 2: the real server, over TCP. The peer is this machine; only the file says whether it is believed.
#[test]
fn only_trusted_peers_and_proxies_are_believed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limit.yaml");
    let limits = "anonymous: {per_address: {window_limit: 5, window_seconds: 3600}}\n";
    fs::write(&path, format!("identity: {{trusted_peers: [192.0.2.1/32], trusted_proxies: [192.0.2.1/32]}}\n{limits}")).unwrap();
    let process = Process::start(&["--config", path.to_str().unwrap()]);
    let mut raw = Raw::connect(process.address);
    let statuses: Vec<u16> = (0..20)
        .map(|n| {
            let headers = format!("X-Forwarded-For: 10.0.0.{n}\r\nX-Real-IP: 10.0.0.{n}\r\nForwarded: for=10.0.0.{n}\r\nTrue-Client-IP: 10.0.0.{n}\r\nCF-Connecting-IP: 10.0.0.{n}\r\n");
            raw.check(headers, "{}").unwrap().status
        })
        .collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 5, "{statuses:?}");
    assert!(metrics(&process).contains("weir_claims_ignored_total 20"));
    for (headers, body) in
        [("", r#"{"user":"alice"}"#), ("X-User-ID: alice\r\n", "{}"), ("X-API-Key: k\r\n", "{}"), ("", r#"{"address":"1.2.3.4"}"#)]
    {
        let reply = raw.check(headers, body).unwrap();
        assert_eq!((reply.status, &reply.json()["code"]), (403, &json!("untrusted_peer")), "{headers}{body}");
    }
}

#[test]
fn a_trusted_proxy_tells_clients_apart_and_an_api_key_is_shown_only_as_its_hash() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limit.yaml");
    fs::write(&path, "anonymous: {per_address: {window_limit: 5, window_seconds: 3600}}\n").unwrap();
    let process = Process::start(&["--config", path.to_str().unwrap(), "--log-level", "trace"]);
    let mut raw = Raw::connect(process.address);
    let mut subject = |headers: &str| raw.check(headers, "{}").unwrap().json()["subject"].as_str().unwrap().to_owned();
    // Case 3: two lines, the right-most is the proxy's word.
    assert_eq!(subject("X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-For: 203.0.113.5\r\n"), "ip:203.0.113.5");
    assert_eq!(subject("Forwarded: for=\"[2001:db8::17]:4711\"\r\n"), "ip:2001:db8::/64");
    assert_eq!(subject("X-User-ID: bob\r\n"), "bob");
    assert_eq!(subject("X-API-Key: secret\r\nX-User-ID: bob\r\n"), "key:2bb80d537b1da3e38bd30361aa855686");
    let two = raw.check("X-API-Key: a\r\nX-API-Key: b\r\n", "{}").unwrap();
    assert_eq!((two.status, &two.json()["code"]), (400, &json!("invalid_api_key")));
    process.signal("TERM");
    let (_, log) = process.wait();
    assert!(log.iter().all(|line| !line.contains("secret")), "an API key is in no line of the log");
}

/// Eight clients ask as fast as they can while the file changes ten times, well and badly.
#[test]
fn under_full_load_no_request_fails_while_the_file_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limit.yaml");
    write(&path, 1_000);
    let process = Process::start(&["--config", path.to_str().unwrap()]);
    let (address, stop) = (process.address, std::sync::Arc::new(AtomicBool::new(false)));
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut raw = Raw::connect(address);
                let mut asked = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let reply = raw.check("", &json!({"user": format!("u{client}-{}", asked % 100)}).to_string()).expect("an answer");
                    assert!(matches!(reply.status, 200 | 429), "{reply:?}");
                    asked += 1;
                }
                asked
            })
        })
        .collect();
    let mut raw = Raw::connect(address);
    for n in 1..=10 {
        if n % 5 == 0 {
            fs::write(&path, "defaults: {capcity: 7}\n").unwrap();
            let failed = format!(r#"weir_config_reloads_total{{result="failed"}} {}"#, n / 5);
            eventually(|| metrics(&process).contains(&failed), "the bad one is counted");
        }
        write(&path, 1_000 + n);
        eventually(|| limit(&mut raw, "probe") == 1_000 + n, "each good one is in force");
    }
    stop.store(true, Ordering::Relaxed);
    let asked: u64 = clients.into_iter().map(|client| client.join().expect("no request failed")).sum();
    assert!(asked > 1_000, "that was no load: {asked} requests");
    let text = metrics(&process);
    assert!(text.contains(r#"weir_config_reloads_total{result="applied"} 10"#), "one reload for each change: {text}");
}

/// Bad files, large and deep ones too, leave nothing behind.
#[test]
fn bad_files_leave_no_memory_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limit.yaml");
    write(&path, 5);
    let process = Process::start(&["--config", path.to_str().unwrap()]);
    let mut raw = Raw::connect(process.address);
    assert_eq!(limit(&mut raw, "u"), 5);
    let many_mistakes = format!("defaults:\n{}", "  unknown: 1\n".repeat(40_000));
    let bad = [
        "x".repeat(50 * 1024 * 1024),
        many_mistakes,
        "[".repeat(500_000),
        "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b]\n".to_owned(),
    ];
    let mut round = |first: u32| {
        for (n, text) in (first..).zip(&bad) {
            fs::write(&path, text).unwrap();
            let failed = format!(r#"weir_config_reloads_total{{result="failed"}} {}"#, n + 1);
            eventually(|| metrics(&process).contains(&failed), "it is refused");
        }
        write(&path, 6 + first);
        eventually(|| limit(&mut raw, "u") == 6 + first, "the good one applies");
        process.resident_memory()
    };
    // What the allocator keeps after the first round it uses again in the next ones.
    let once = round(0);
    let thrice = [round(4), round(8)].into_iter().min().unwrap();
    assert!(thrice < once + 16 * 1024 * 1024, "{once} bytes after one round, {thrice} after more");
}
