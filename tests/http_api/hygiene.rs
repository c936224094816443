//! What the service does with requests that are wrong, late, long, or none at all.

use std::sync::Arc;
use std::time::Duration;

use weir::config::{Config, OnFailure, StoreSettings};
use weir::limit::{Decision, Policy};
use weir::store::{Ask, ErrorKind, Key, Store, StoreError};

use crate::support::server::{PATIENCE, Setup, TestServer};

fn quick() -> TestServer {
    let mut setup = Setup::default();
    // Short for a test, and still longer than a busy machine keeps an honest client from sending the rest.
    setup.settings.body_timeout = Duration::from_secs(3);
    setup.options.head_timeout = Duration::from_secs(3);
    setup.start()
}

#[test]
fn case_22_bytes_above_ascii_in_headers_harm_nobody() {
    let server = Setup::default().start();
    let mut kept = server.connect();
    for round in 0..200 {
        let headers: &[u8] = match round % 3 {
            0 => b"X-User-Id: \xD1\x82\xD0\xB5\r\nX-Request-Id: a\xE2\x84\xA2\r\n",
            1 => b"X-User-Id: \xFF\r\nX-Request-Id: \xFF\r\nOrigin: \xFF\r\n",
            _ => b"X-API-Key: \xFF\r\nX-Forwarded-For: \xFF\r\n",
        };
        assert_eq!(kept.check(headers, r#"{"user":"a","cost":0}"#).unwrap().status, 200);
        let reply = server.connect().check([headers, b"Content-Encoding: \xFF\r\n"].concat(), "{}").unwrap();
        assert_eq!(reply.status, 415);
    }
    assert_eq!(kept.check("", r#"{"user":"a","cost":0}"#).unwrap().status, 200);
    let reply = server.connect().check("X-Request-Id: a\x0bb\r\n", "{}");
    assert!(reply.is_none_or(|reply| reply.status == 400));
}

#[test]
fn an_origin_that_is_none_harms_nobody_where_cors_is_on() {
    let mut setup = Setup::default();
    setup.settings.cors_origins = vec!["https://app.example".to_owned()];
    let server = setup.start();
    let mut raw = server.connect();
    for origin in [&b"\xFF"[..], b"null", b"*", b"https://app.example, https://app.example", b""] {
        let reply = raw.check([b"Origin: ", origin, b"\r\n"].concat(), "{}").unwrap();
        assert!([200, 400].contains(&reply.status), "{origin:?}: {reply:?}");
        assert_eq!(reply.header("access-control-allow-origin"), None, "{origin:?}");
        assert!(reply.header("x-request-id").is_some(), "{origin:?}");
    }
}

#[test]
fn case_112_a_body_over_the_limit_is_413_announced_or_chunked() {
    let server = Setup::default().start();
    let long = "x".repeat(64 * 1024 + 1);
    let reply = server.connect().check("", &long).unwrap();
    assert_eq!((reply.status, reply.json()["code"].as_str()), (413, Some("body_too_large")));

    let mut raw = server.connect();
    raw.send("POST /v1/check HTTP/1.1\r\nHost: weir\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..3 {
        raw.send(format!("8000\r\n{}\r\n", "x".repeat(0x8000)));
    }
    raw.send("0\r\n\r\n");
    assert_eq!(raw.reply().unwrap().status, 413);

    let mut raw = server.connect();
    raw.send("POST /v1/check HTTP/1.1\r\nHost: weir\r\nContent-Length: 99999999999\r\n\r\n");
    assert_eq!(raw.reply().unwrap().status, 413, "before the body comes");
    assert_eq!(server.decisions(), 0.0);

    let padded = format!(r#"{{"user":"a"{}}}"#, " ".repeat(64 * 1024 - 12));
    assert_eq!(server.connect().check("", &padded).unwrap().status, 200, "the limit itself fits");
}

#[test]
fn case_112_slow_heads_and_bodies_are_cut_and_charge_nobody() {
    let server = quick();
    let mut slow_body = server.connect();
    slow_body.send("POST /v1/check HTTP/1.1\r\nHost: weir\r\nContent-Length: 13\r\n\r\n{\"us");
    let mut slow_head = server.connect();
    slow_head.send("POST /v1/check HTTP/1.1\r\nHost: we");
    let reply = slow_body.reply().unwrap();
    assert_eq!((reply.status, reply.json()["code"].as_str()), (408, Some("body_timeout")));
    assert!(slow_body.is_closed());
    assert!(slow_head.reply().is_none_or(|reply| reply.status == 408));
    assert!(slow_head.is_closed());

    let mut cut = server.connect();
    cut.send("POST /v1/check HTTP/1.1\r\nHost: weir\r\nContent-Length: 13\r\n\r\n{\"us");
    drop(cut);
    assert_eq!(server.connect().check("", "{}").unwrap().status, 200);
    assert_eq!(server.decisions(), 1.0);
}

#[test]
fn a_client_that_asks_whether_to_go_on_is_told_to() {
    let server = Setup::default().start();
    let mut raw = server.connect();
    raw.send("POST /v1/check HTTP/1.1\r\nHost: weir\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_eq!(raw.reply().unwrap().status, 100);
    assert_eq!(raw.send("{}").reply().unwrap().status, 200);
}

#[test]
fn rubbish_on_a_connection_ends_that_connection_alone() {
    let server = Setup::default().start();
    let mut good = server.connect();
    for rubbish in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"[..],
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ] {
        let mut raw = server.connect();
        raw.send(rubbish).send("\r\n\r\n");
        assert!(raw.reply().is_none_or(|reply| (400..500).contains(&reply.status)), "{rubbish:?}");
        assert_eq!(good.check("", "{}").unwrap().status, 200);
    }
    let mut raw = server.connect();
    raw.send("POST /v1/check HTTP/1.1\r\nHost: weir\r\nContent-Length: 2\r\n\r\n{}\x01\x02 rubbish\r\n\r\n");
    assert_eq!(raw.reply().unwrap().status, 200, "what came before the rubbish is answered");
    assert!(raw.reply().is_none_or(|reply| reply.status == 400));
    assert!(raw.is_closed());
}

#[test]
fn a_head_without_end_is_refused_quickly() {
    let server = Setup::default().start();
    let mut raw = server.connect();
    raw.send("GET /health/live HTTP/1.1\r\nHost: weir\r\nX-Long: ").send("x".repeat(200_000)).send("\r\n\r\n");
    assert!(raw.reply().is_none_or(|reply| (400..500).contains(&reply.status)));
    assert_eq!(server.connect().check("", "{}").unwrap().status, 200);
}

#[test]
fn heads_with_too_much_in_them_are_refused_quickly_and_charge_nobody() {
    let server = Setup::default().start();
    let many = "X-More: 1\r\n".repeat(2_000);
    let target = "x".repeat(200_000);
    for head in [
        format!("POST /v1/check HTTP/1.1\r\nHost: weir\r\n{many}Content-Length: 2\r\n\r\n{{}}"),
        format!("GET /v1/auth HTTP/1.1\r\nHost: weir\r\n{many}\r\n"),
        format!("GET /v1/auth/{target} HTTP/1.1\r\nHost: weir\r\n\r\n"),
        format!("GET /v1/auth?user={target} HTTP/1.1\r\nHost: weir\r\n\r\n"),
        format!("{target} /v1/auth HTTP/1.1\r\nHost: weir\r\n\r\n"),
    ] {
        let mut raw = server.connect();
        raw.send(&head);
        assert!(raw.reply().is_none_or(|reply| (400..500).contains(&reply.status)), "{}", &head[..60]);
        assert_eq!(server.connect().check("", r#"{"cost":0}"#).unwrap().status, 200);
    }
    assert_eq!(server.decisions(), 5.0, "the honest client's");
}

#[test]
fn case_112_hundreds_of_dribbling_clients_do_not_keep_an_honest_one_waiting() {
    let server = quick();
    let mut slow: Vec<_> = (0..400).map(|_| server.connect()).collect();
    for raw in &mut slow {
        raw.send("POST /v1/check HTTP/1.1\r\nHost: weir\r\nContent-Length: 1000\r\n\r\n{");
    }
    let mut honest = server.connect();
    for round in 0..200 {
        assert_eq!(honest.check("", &format!(r#"{{"user":"u{round}"}}"#)).unwrap().status, 200);
        for raw in slow.iter_mut().step_by(200) {
            raw.send(" ");
        }
    }
    for raw in &mut slow[2..200] {
        let reply = raw.reply().unwrap();
        assert_eq!((reply.status, reply.json()["code"].as_str()), (408, Some("body_timeout")));
        assert!(raw.is_closed());
    }
    assert_eq!(server.decisions(), 200.0);
}

#[test]
fn case_112_a_chunked_body_without_end_keeps_no_connection() {
    let server = quick();
    for (target, status) in [("/v1/check", 408), ("/v1/check/batch", 408), ("/v1/auth", 200), ("/v1/auth/below", 200)] {
        let mut raw = server.connect();
        raw.send(format!("POST {target} HTTP/1.1\r\nHost: weir\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n"));
        let reply = raw.reply().unwrap();
        assert_eq!((reply.status, reply.header("connection")), (status, Some("close")), "{target}");
        let start = weir::clock::monotonic();
        assert!(raw.is_closed() && weir::clock::elapsed(start) < PATIENCE, "{target}");
    }
}

#[test]
fn case_112_the_door_for_proxies_reads_bodies_of_any_length_and_waits_for_none() {
    let server = quick();
    let mut raw = server.connect();
    raw.send("POST /v1/auth HTTP/1.1\r\nHost: weir\r\nContent-Length: 300000\r\n\r\n").send("x".repeat(300_000));
    assert_eq!(raw.reply().unwrap().status, 200);
    raw.send("GET /v1/auth HTTP/1.1\r\nHost: weir\r\n\r\n");
    assert_eq!(raw.reply().unwrap().status, 200, "the connection goes on");
    // What auth_request sends when nobody has told it to leave Content-Length out: the body never comes.
    raw.send("GET /v1/auth HTTP/1.1\r\nHost: weir\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(raw.reply().unwrap().status, 200);
    let mut raw = server.connect();
    raw.send("POST /v1/auth HTTP/1.1\r\nHost: weir\r\nContent-Length: 99999999999\r\n\r\n");
    assert_eq!(raw.reply().unwrap().status, 200);
    assert_eq!(server.decisions(), 4.0, "each charged once");
}

#[test]
fn other_types_of_content_are_415_and_the_connection_goes_on() {
    let server = Setup::default().start();
    let mut raw = server.connect();
    for (name, value, status) in [
        ("Content-Type", "text/plain", 415),
        ("Content-Type", "application/xml", 415),
        ("Content-Encoding", "gzip", 415),
        ("Content-Type", "Application/JSON; charset=utf-8", 200),
        ("Content-Type", "application/vnd.weir+json", 200),
        ("X-None", "none", 200),
    ] {
        raw.send(format!("POST /v1/check HTTP/1.1\r\nHost: weir\r\n{name}: {value}\r\nContent-Length: 2\r\n\r\n{{}}"));
        assert_eq!(raw.reply().unwrap().status, status, "{name}: {value}");
    }
}

#[test]
fn unknown_paths_and_methods_are_problems_and_the_connection_goes_on() {
    let server = Setup::default().start();
    let mut raw = server.connect();
    for (method, path, status, allow) in [
        ("POST", "/nothing", 404, None),
        ("POST", "/v1/check/", 404, None),
        ("PUT", "/v1/check", 405, Some("POST")),
        ("OPTIONS", "/v1/check", 405, Some("POST")),
        ("DELETE", "/v1/check/batch", 405, Some("POST")),
        ("POST", "/health/live", 405, Some("GET, HEAD")),
        ("GET", "/health/ready", 200, None),
    ] {
        raw.send(format!("{method} {path} HTTP/1.1\r\nHost: weir\r\nContent-Length: 2\r\n\r\n{{}}"));
        let reply = raw.reply().unwrap();
        assert_eq!((reply.status, reply.header("allow")), (status, allow), "{method} {path}");
        if status >= 400 {
            assert_eq!(reply.header("content-type"), Some("application/problem+json"));
        }
    }
    assert_eq!(server.decisions(), 0.0);
}

#[test]
fn request_ids_are_taken_when_sane_and_made_otherwise() {
    let server = Setup::default().start();
    let mut raw = server.connect();
    let mut ask = |id: &str| raw.check(format!("X-Request-Id: {id}\r\n"), "{}").unwrap().header("x-request-id").unwrap().to_owned();
    assert_eq!(ask("abc-123"), "abc-123");
    let long = "x".repeat(129);
    for id in ["", "two words", &long] {
        let made = ask(id);
        let (process, count) = made.split_once('-').expect("the process and a count");
        let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(made != id && process.len() == 32 && is_hex(process) && is_hex(count), "{id:?} became {made:?}");
    }
    assert_ne!(ask(""), ask(""));
}

#[test]
fn with_local_a_store_that_is_away_is_answered_from_memory_and_says_so() {
    let server = Setup { store: Arc::new(Away), ..Setup::default() }.start();
    let mut raw = server.connect();
    let reply = raw.check("", r#"{"user":"u"}"#).unwrap();
    assert_eq!(
        (reply.status, reply.header("x-ratelimit-degraded"), &reply.json()["degraded"]),
        (200, Some("local"), &serde_json::json!(true))
    );
    raw.send("GET /health/ready HTTP/1.1\r\nHost: weir\r\n\r\n");
    let ready = raw.reply().unwrap();
    assert_eq!((ready.status, &ready.json()["status"]), (200, &serde_json::json!("degraded")));
    assert!(server.metric(r#"weir_degraded_decisions_total{policy="local"}"#) >= 1.0);
}

/// A store that never says.
pub(crate) struct Away;

#[async_trait::async_trait]
impl Store for Away {
    async fn decide(&self, _: Ask<'_>) -> Result<Decision, StoreError> {
        Err(StoreError::not_run(ErrorKind::Connection, "gone for a test"))
    }

    async fn reset(&self, _: &Key, _: &Policy) -> Result<(), StoreError> {
        Err(StoreError::not_run(ErrorKind::Connection, "gone for a test"))
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Err(StoreError::not_run(ErrorKind::Connection, "gone for a test"))
    }
}

#[test]
fn with_deny_a_store_that_is_away_is_503_with_a_time_to_come_back() {
    let config = Config { store: StoreSettings { on_failure: OnFailure::Deny }, ..Config::default() };
    let server = Setup { store: Arc::new(Away), config, ..Setup::default() }.start();
    let mut raw = server.connect();
    let reply = raw.check("", "{}").unwrap();
    assert_eq!((reply.status, reply.header("retry-after"), reply.header("ratelimit")), (503, Some("1"), None));
    assert_eq!(reply.json()["type"], "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
    assert!(!reply.body.contains("for a test"), "what is wrong inside stays inside");
    raw.send("POST /v1/check/batch HTTP/1.1\r\nHost: weir\r\nContent-Length: 23\r\n\r\n{\"checks\":[{},{\"a\":1}]}");
    raw.send("GET /health/ready HTTP/1.1\r\nHost: weir\r\n\r\n");
    let reply = raw.reply().unwrap();
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.json()["answers"][0]["code"], "store_unavailable");
    assert_eq!(reply.json()["answers"][1]["code"], "invalid_body");
    let reply = raw.reply().unwrap();
    assert_eq!((reply.status, &reply.json()["store"]["status"]), (503, &"down".into()));
    assert_eq!(server.metric(r#"weir_store_errors_total{kind="connection"}"#), 2.0);
}
