//! What is in the log of a whole run, and what is not.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::eventually;
use crate::scrape::{get, post, scrape, value};
use crate::support::redis::RedisServer;
use crate::support::server::{Process, Raw};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn events(log: &[String]) -> Vec<Value> {
    log.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[test]
fn refusals_are_summed_up_and_not_logged_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let limits = folder.path().join("limit.yaml");
    fs::write(&limits, "defaults: {bucket_capacity: 10, tokens_per_second: 0.0001}\n").unwrap();
    let process = Process::start(&["--config", limits.to_str().unwrap()]);
    let mut raw = Raw::connect(process.address);
    for (user, checks) in [("alice", 910), ("bob", 40), ("carol", 10), ("", 41)] {
        for _ in 0..checks {
            let body = if user.is_empty() { "{}".to_owned() } else { format!(r#"{{"user":"{user}"}}"#) };
            raw.check("", &body).unwrap();
        }
    }
    raw.check("", r#"{"user":"dave","cost":11}"#).unwrap();
    let text = scrape(&mut raw);
    let counted = |reason| value(&text, &format!(r#"weir_decisions_total{{outcome="refused",reason="{reason}"}}"#));
    process.signal("TERM");
    let (status, log) = process.wait();
    assert_eq!(status.code(), Some(0));
    assert!(log.len() < 30, "{} lines for a thousand refusals", log.len());
    let events = events(&log);
    let summaries: Vec<&Value> = events.iter().filter(|event| event["message"] == "refusals since the last summary").collect();
    let sum = |field: &str| summaries.iter().map(|event| event[field].as_f64().unwrap()).sum::<f64>();
    assert!((1..=5).contains(&summaries.len()), "{summaries:?}");
    assert_eq!((sum("bucket"), sum("cost_exceeds_limit")), (counted("bucket"), counted("cost_exceeds_limit")));
    assert_eq!(sum("refused"), 930.0 + counted("window") + 1.0);
    assert!(summaries[0]["busiest"].as_str().unwrap().starts_with("alice "), "{summaries:?}");
}

#[test]
fn a_line_of_a_request_has_its_id_and_the_callers_trace() {
    let process = Process::start(&["--log-level", "debug"]);
    let ask = |headers: &str| Raw::connect(process.address).check(headers, r#"{"user":"a"}"#).unwrap();
    ask(&format!("X-Request-Id: with-trace\r\ntraceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n"));
    ask("X-Request-Id: without\r\ntraceparent: nonsense\r\n");
    let twice = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n").repeat(2);
    ask(&format!("X-Request-Id: two-parents\r\n{twice}"));
    process.signal("TERM");
    let events = events(&process.wait().1);
    for (id, trace) in [("with-trace", Value::from(TRACE)), ("without", Value::Null), ("two-parents", Value::Null)] {
        let of_request: Vec<_> = events.iter().filter(|event| event["span"]["request_id"] == id).collect();
        assert!(of_request.iter().any(|event| event["message"] == "decided"), "{id}: {events:?}");
        assert!(of_request.iter().all(|event| event["span"]["trace_id"] == trace), "{id}: {of_request:?}");
    }
}

#[test]
fn without_a_terminal_the_log_is_json_and_text_is_had_for_the_asking() {
    let folder = tempfile::tempdir().unwrap();
    for (format, json) in [(None, true), (Some("text"), false), (Some("json"), true)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["serve", "--bind", "127.0.0.1:0", "--data-dir"]).arg(folder.path());
        command.args(format.into_iter().flat_map(|format| ["--log-format", format]));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stderr.take().unwrap()), &mut line).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(serde_json::from_str::<Value>(&line).is_ok(), json, "{format:?}: {line}");
        assert!(line.contains("INFO") && !line.contains('\u{1b}'), "{line}");
    }
}

#[test]
fn nothing_secret_is_logged_at_any_level_nor_shown_in_metrics_or_the_process_list() {
    let [redis_password, hash_secret, operator, wrong_token, api_key, admin_key, cookie, broken] =
        ["redis-password", "hash-secret", "operator-token", "wrong-token", "api-key", "admin-api-key", "cookie", "broken-body"]
            .map(|name| format!("{name}-{}", "5ecre7".repeat(3)));
    let redis = RedisServer::start();
    redis::cmd("CONFIG").arg(&["SET", "requirepass", &redis_password]).exec(&mut redis.connect()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let made = Command::new("sha256sum").arg(file("token", &operator)).output().unwrap();
    let hash = String::from_utf8(made.stdout).unwrap().split(' ').next().unwrap().to_owned();
    let tokens = file("tokens", &format!("night-shift operator {hash}\n"));
    let secret = file("hash-secret", &hash_secret);
    let arguments = ["--log-level", "trace", "--admin-tokens-file", &tokens, "--key-hash-secret-file", &secret];
    let url = |password: &str| format!("redis://:{password}@127.0.0.1:{}", redis.port());
    let wrong_password = format!("wrong-{redis_password}");
    let processes = [redis_password.as_str(), &wrong_password]
        .map(|password| Process::start_with(&arguments, &[("WEIR_REDIS_URL", url(password).as_str())]));

    for process in &processes {
        let mut raw = Raw::connect(process.address);
        raw.check(format!("X-API-Key: {api_key}\r\nCookie: session={cookie}\r\nAuthorization: Bearer {operator}\r\n"), "{}").unwrap();
        raw.check(format!("X-API-Key: {api_key}, {api_key}\r\n"), "{}").unwrap();
        raw.check("", &format!(r#"{{"api_key":"{broken}"}}"#)).unwrap();
        raw.check("", &format!(r#"{{"user":"{broken}"#)).unwrap();
        let config = "/admin/rate-limit/config";
        let change = format!(r#"{{"api_key":"{admin_key}","bucket_capacity":7}}"#);
        post(&mut raw, config, &format!("Authorization: Bearer {operator}\r\n"), &change);
        post(&mut raw, config, &format!("Authorization: Bearer {wrong_token}\r\n"), &change);
        post(&mut raw, config, &format!("Authorization: Basic {wrong_token}\r\n"), &change);
        post(&mut raw, "/admin/rate-limit/explain", &format!("Authorization: Bearer {operator}\r\nX-API-Key: {api_key}\r\n"), "{}");
        get(&mut raw, "/health/ready");
    }
    let mut shown = String::new();
    for process in processes {
        let mut raw = Raw::connect(process.address);
        shown += &scrape(&mut raw);
        shown += &get(&mut raw, "/health/ready").body;
        shown += &String::from_utf8_lossy(&fs::read(format!("/proc/{}/cmdline", process.id())).unwrap_or_default());
        eventually(|| get(&mut raw, "/health/live").status == 200, "it lives");
        process.signal("TERM");
        let (status, log) = process.wait();
        assert_eq!(status.code(), Some(0));
        assert!(log.iter().any(|line| line.contains(r#""level":"TRACE""#)) && log.len() > 50, "{} lines", log.len());
        shown += &log.join("\n");
    }
    let secrets = [&redis_password, &wrong_password, &hash_secret, &operator, &wrong_token, &api_key, &admin_key, &cookie, &broken, &hash];
    for secret in secrets {
        if let Some(line) = shown.lines().find(|line| line.contains(secret.as_str())) {
            panic!("{secret} is shown: {line}");
        }
    }
}
