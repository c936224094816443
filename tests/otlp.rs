//! Spans that are sent to a collector: a socket of the test's own that reads what a collector would get.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::net::TcpListener;

use support::server::{Process, Raw, Upload};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn contains(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_request_is_a_child_of_the_callers_span_and_tells_no_secret() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let process = Process::start_with(&["--workers", "1"], &[("WEIR_OTLP_ENDPOINT", endpoint.as_str())]);
    let mut raw = Raw::connect(process.address);
    let trace = |flags: &str| format!("traceparent: 00-{TRACE}-{PARENT}-{flags}\r\n");
    raw.check(format!("X-Request-Id: one-that-is-seen\r\nX-API-Key: a-secret-key\r\n{}", trace("01")), "{}").unwrap();
    raw.check(format!("X-Request-Id: one-that-is-not\r\n{}", trace("00")), "{}").unwrap();
    process.signal("TERM");
    let upload = Upload::take(&collector);
    assert_eq!(upload.path, "/v1/traces");
    for part in [&b"weir"[..], b"request", b"one-that-is-seen", &bytes(TRACE), &bytes(PARENT)] {
        assert!(contains(&upload.body, part), "{part:?} is not in {:?}", String::from_utf8_lossy(&upload.body));
    }
    for part in [&b"one-that-is-not"[..], b"a-secret-key"] {
        assert!(!contains(&upload.body, part), "{:?} is sent", String::from_utf8_lossy(part));
    }
    assert_eq!(process.wait().0.code(), Some(0));
}

#[test]
fn a_collector_that_is_away_delays_neither_answers_nor_the_end_and_is_named_once() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = format!("http://{nobody}/");
    let process = Process::start_with(&["--workers", "1"], &[("WEIR_OTLP_ENDPOINT", endpoint.as_str())]);
    let mut raw = Raw::connect(process.address);
    for _ in 0..3_000 {
        assert!(raw.check("", r#"{"user":"a"}"#).is_some());
    }
    process.signal("TERM");
    let (status, log) = process.wait();
    assert_eq!(status.code(), Some(0));
    assert_eq!(log.iter().filter(|line| line.contains("the collector takes no spans")).count(), 1, "{log:?}");
}

#[test]
fn an_endpoint_that_is_not_plain_http_is_an_error_at_the_start() {
    for endpoint in ["https://example.org", "127.0.0.1:4318", "http://"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["serve", "--bind", "127.0.0.1:0", "--otlp-endpoint", endpoint])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && text.contains("--otlp-endpoint"), "{endpoint}: {text}");
    }
}
