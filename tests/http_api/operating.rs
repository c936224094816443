//! Probes, metrics, CORS, and the end.

use std::process::Command;
use std::time::Duration;

use weir::limit::Field;
use weir::telemetry::Metrics;

use crate::support::server::{Process, Raw, Reply, Setup, limits};

fn ask(raw: &mut Raw, method: &str, path: &str, headers: &str) -> Reply {
    raw.send(format!("{method} {path} HTTP/1.1\r\nHost: weir\r\n{headers}\r\n")).reply().expect("an answer")
}

#[test]
fn case_109_probes_and_metrics_take_nothing() {
    let server = Setup::default().config(limits(&[(Field::WindowLimit, "5"), (Field::WindowSeconds, "3600")])).start();
    let mut raw = server.connect();
    for _ in 0..1_000 {
        for path in ["/health/live", "/health/ready", "/metrics"] {
            assert_eq!(ask(&mut raw, "GET", path, "").status, 200);
        }
    }
    assert_eq!(server.decisions(), 0.0);
    for _ in 0..5 {
        assert_eq!(raw.check("", "").unwrap().status, 200);
    }
    assert_eq!(raw.check("", "").unwrap().status, 429);
}

#[test]
fn head_is_answered_without_a_body() {
    let server = Setup::default().start();
    for path in ["/health/live", "/health/ready", "/metrics"] {
        let mut raw = server.connect();
        raw.send(format!("HEAD {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n"));
        // The length is that of the body which GET would have; what follows is the end.
        assert!(raw.reply().is_none());
        assert!(raw.is_closed());
    }
    assert_eq!(server.metric(r#"weir_http_requests_total{endpoint="health",status="2xx"}"#), 2.0);
}

#[test]
fn readiness_says_what_it_looked_at() {
    let server = Setup::default().start();
    let reply = ask(&mut server.connect(), "GET", "/health/ready", "");
    assert_eq!(
        reply.json(),
        serde_json::json!({ "status": "ready", "store": { "kind": "memory", "status": "up" }, "config": { "status": "loaded" } })
    );
}

#[test]
fn metrics_count_decisions_and_name_no_subject() {
    let server = Setup::default().config(limits(&[(Field::BucketCapacity, "1"), (Field::TokensPerSecond, "0.001")])).start();
    let mut raw = server.connect();
    let before = ask(&mut raw, "GET", "/metrics", "").body.lines().count();
    for user in 0..500 {
        raw.check("", &format!(r#"{{"user":"someone-{user}"}}"#)).unwrap();
    }
    raw.check("", r#"{"user":"someone-0"}"#).unwrap();
    raw.check("", "").unwrap();
    let reply = ask(&mut raw, "GET", "/metrics", "");
    assert!(reply.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    assert_eq!(reply.body.lines().count(), before, "the number of series changed");
    assert!(!reply.body.contains("someone") && !reply.body.contains("127.0.0.1"));
    assert_eq!(server.metric(r#"weir_decisions_total{outcome="admitted",reason="none"}"#), 501.0);
    assert_eq!(server.metric(r#"weir_decisions_total{outcome="refused",reason="bucket"}"#), 1.0);
    assert_eq!(server.metric(r#"weir_http_requests_total{endpoint="check",status="4xx"}"#), 1.0);
    assert_eq!(server.metric(r#"weir_build_info{version="0.1.0"}"#), 1.0);
}

#[test]
fn case_118_metrics_are_made_once_for_sixteen_workers_and_two_servers() {
    let (one, two) = (Setup::default().workers(16).start(), Setup::default().workers(2).start());
    for _ in 0..40 {
        assert_eq!(one.connect().check("", "{}").unwrap().status, 200);
    }
    for _ in 0..100 {
        one.limiter.reload(limits(&[]));
    }
    two.connect().check("", "{}").unwrap();
    assert_eq!((one.decisions(), two.decisions()), (40.0, 1.0));
    assert!((0..16).all(|_| Metrics::new().is_ok()));
}

#[test]
fn case_107_preflights_are_answered_and_never_charged() {
    let mut setup = Setup::default().config(limits(&[(Field::BucketCapacity, "10"), (Field::TokensPerSecond, "0.001")]));
    setup.settings.cors_origins = vec!["https://app.example".to_owned()];
    let server = setup.start();
    let mut raw = server.connect();
    let origin = "Origin: https://app.example\r\n";
    for left in (0..10).rev() {
        let reply = ask(
            &mut raw,
            "OPTIONS",
            "/v1/check",
            &format!("{origin}Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type\r\n"),
        );
        assert!([200, 204].contains(&reply.status), "{reply:?}");
        assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"));
        let reply = raw.check(origin, r#"{"user":"a"}"#).unwrap();
        assert_eq!((reply.status, reply.json()["remaining"].as_i64()), (200, Some(left)));
    }
    assert_eq!(server.decisions(), 10.0);
    let refused = raw.check(origin, r#"{"user":"a"}"#).unwrap();
    let wrong = raw.check(origin, r#"{"user":""}"#).unwrap();
    for (reply, status) in [(refused, 429), (wrong, 400)] {
        assert_eq!((reply.status, reply.header("access-control-allow-origin")), (status, Some("https://app.example")));
        assert!(reply.header("access-control-expose-headers").unwrap().contains("retry-after"));
    }
    let foreign = raw.check("Origin: https://other.example\r\n", r#"{"user":"b"}"#).unwrap();
    assert_eq!((foreign.status, foreign.header("access-control-allow-origin")), (200, None));
}

#[test]
fn where_cors_is_on_a_page_can_read_the_headers_of_every_status() {
    let routes = "routes: [{name: closed, match: {path: /closed}, limits: {mode: block}}]";
    let mut setup = Setup::default().config(weir::config::Config::from_yaml(routes).unwrap().0);
    setup.settings.cors_origins = vec!["https://app.example".to_owned()];
    let server = setup.start();
    let mut raw = server.connect();
    let long = "x".repeat(64 * 1024 + 1);
    for (method, path, headers, body, status) in [
        ("POST", "/v1/check", "", r#"{"user":"a","cost":100}"#, 200),
        ("POST", "/v1/check", "", r#"{"user":"a"}"#, 429),
        ("POST", "/v1/check", "", r#"{"user":"a","cost":1000}"#, 422),
        ("POST", "/v1/check", "", r#"{"user":"a","path":"/closed"}"#, 403),
        ("POST", "/v1/check", "", "no JSON", 400),
        ("POST", "/v1/check", "Content-Type: text/plain\r\n", "{}", 415),
        ("POST", "/v1/check/batch", "", r#"{"checks":[]}"#, 200),
        ("GET", "/v1/check", "", "", 405),
        ("GET", "/nothing", "", "", 404),
        ("GET", "/health/ready", "", "", 200),
        ("POST", "/v1/check", "", &long, 413),
    ] {
        let head = format!("Origin: https://app.example\r\nContent-Length: {}\r\n{headers}", body.len());
        let reply = raw.send(format!("{method} {path} HTTP/1.1\r\nHost: weir\r\n{head}\r\n{body}")).reply().expect("an answer");
        assert_eq!(
            (reply.status, reply.header("access-control-allow-origin")),
            (status, Some("https://app.example")),
            "{method} {path} {body:.40}"
        );
        let exposed = reply.header("access-control-expose-headers").unwrap().to_ascii_lowercase();
        for name in
            ["ratelimit", "ratelimit-policy", "retry-after", "retry-after-ms", "x-should-retry", "x-ratelimit-remaining", "x-request-id"]
        {
            assert!(exposed.split(", ").any(|found| found == name), "{method} {path}: {exposed}");
        }
    }
}

#[test]
fn case_110_on_its_way_out_it_is_not_ready_and_says_goodbye_on_every_connection() {
    let mut setup = Setup::default();
    setup.options.notice = Duration::from_secs(2);
    let mut server = setup.start();
    let (mut probe, mut client) = (server.connect(), server.connect());
    assert_eq!(client.check("", "{}").unwrap().status, 200);
    assert_eq!(ask(&mut probe, "GET", "/health/ready", "").status, 200);
    let mut in_flight = server.connect();
    in_flight.send("POST /v1/check HTTP/1.1\r\nHost: weir\r\nContent-Length: 2\r\n\r\n{");
    server.begin_stop();
    let draining = loop {
        let reply = ask(&mut server.connect(), "GET", "/health/ready", "");
        if reply.status == 503 {
            break reply;
        }
    };
    assert_eq!(draining.json()["status"], "draining");
    let reply = client.check("", "{}").unwrap();
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    assert!(client.is_closed());
    assert_eq!(in_flight.send("}").reply().unwrap().status, 200);
    assert_eq!(server.decisions(), 3.0);
}

#[test]
fn case_110_sigterm_ends_the_process_with_0_though_idle_connections_stay() {
    for signal in ["TERM", "INT"] {
        let process = Process::start(&["--workers", "2", "--shutdown-timeout", "5"]);
        let mut idle: Vec<Raw> = (0..50).map(|_| Raw::connect(process.address)).collect();
        for raw in &mut idle {
            assert_eq!(raw.check("X-Request-Id: from-a-test\r\n", r#"{"user":"a"}"#).unwrap().status, 200);
        }
        process.signal(signal);
        let (status, log) = process.wait();
        assert_eq!(status.code(), Some(0), "{log:?}");
        assert!(log.iter().any(|line| line.contains("stopped")), "{log:?}");
    }
}

#[test]
fn every_log_line_of_a_request_has_its_id() {
    let process = Process::start(&["--log-level", "weir=debug"]);
    Raw::connect(process.address).check("X-Request-Id: from-a-test\r\n", r#"{"user":"a"}"#).unwrap();
    process.signal("TERM");
    let (_, log) = process.wait();
    let of_request: Vec<&String> = log.iter().filter(|line| line.contains("decided") || line.contains("answered")).collect();
    assert_eq!(of_request.len(), 2, "{log:?}");
    assert!(of_request.iter().all(|line| line.contains("from-a-test")), "{of_request:?}");
}

#[test]
fn flags_that_are_wrong_are_explained() {
    for (arguments, code, words) in [
        (&["--bind", "nonsense"][..], 1, &["error: ", "nonsense", "hint: "][..]),
        (&["--bind", "127.0.0.1:0", "--cors-origin", "example.org"], 1, &["error: ", "example.org", "hint: "]),
        (&["--bind", "127.0.0.1:0", "--log-level", "weir=loud"], 1, &["error: ", "weir=loud", "hint: "]),
        (&["--headers", "modern"], 2, &["error: ", "modern", "standard,legacy,hints"]),
        (&["--workers", "0"], 2, &["error: "]),
        (&["--shutdown-timeout", "600"], 2, &["error: ", "2..=60"]),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("serve").args(arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(words.iter().all(|word| text.contains(word)), "{arguments:?}: {text}");
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(["serve", "--bind", &address]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && text.contains(&address) && text.contains("hint: "), "{text}");
}
