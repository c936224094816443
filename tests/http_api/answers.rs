//! What a check is told, in bodies and headers.

use std::sync::Arc;

use serde_json::json;
use weir::clock::ManualClock;
use weir::http::Families;
use weir::limit::{Field, US};

use crate::support::server::{Raw, Reply, Setup, TestServer, limits};

/// A moment without a fraction, so that epoch seconds are easy to tell.
const NOW: i64 = 1_700_000_000 * US;

fn setup(fields: &[(Field, &str)]) -> (Setup, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(NOW));
    (Setup::with_clock(clock.clone()).config(limits(fields)), clock)
}

fn start(fields: &[(Field, &str)]) -> (TestServer, Raw) {
    let server = setup(fields).0.start();
    let raw = server.connect();
    (server, raw)
}

#[track_caller]
fn check(raw: &mut Raw, body: &str) -> Reply {
    let reply = raw.check("", body).expect("an answer");
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert!(reply.header("x-request-id").is_some());
    reply
}

#[test]
fn an_admission_has_the_body_and_headers_of_the_contract() {
    let (_server, mut raw) = start(&[]);
    let reply = check(&mut raw, r#"{"user":"alice","cost":1,"path":"/item/7","method":"GET","address":"203.0.113.7"}"#);
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.body,
        r#"{"allowed":true,"subject":"alice","limit":100,"remaining":99,"reset_after":0.5,"retry_after":0,"breaker":"closed","reason":null}"#
    );
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("ratelimit-policy"), Some(r#""bucket";q=100;w=50, "window";q=200;w=60"#));
    assert_eq!(reply.header("ratelimit"), Some(r#""bucket";r=99;t=1"#));
    assert_eq!(reply.header("x-ratelimit-limit"), Some("100"));
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("99"));
    assert_eq!(reply.header("x-ratelimit-reset"), Some("1700000001"));
}

#[test]
fn a_refusal_is_a_problem_with_the_exact_wait() {
    let (_server, mut raw) = start(&[]);
    check(&mut raw, r#"{"user":"a","cost":100}"#);
    let reply = check(&mut raw, r#"{"user":"a"}"#);
    assert_eq!(reply.status, 429);
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(
        reply.json(),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "title": "Quota exceeded", "status": 429,
            "detail": "the bucket has no room for this request; it has in 0.5 s", "code": "rate_limit_exceeded", "reason": "bucket",
            "retry_after": 0.5, "retry_after_ms": 500, "limit": 100, "remaining": 0, "window": 60, "violated-policies": ["bucket"],
        })
    );
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(reply.header("retry-after-ms"), Some("500"));
    assert_eq!(reply.header("x-should-retry"), Some("true"));
    assert_eq!(reply.header("ratelimit"), Some(r#""bucket";r=0;t=1"#));
}

#[test]
fn a_storm_that_the_window_stops_is_abnormal_usage() {
    let (_server, mut raw) = start(&[(Field::BreakerThreshold, "0"), (Field::WindowLimit, "2")]);
    check(&mut raw, r#"{"user":"a","cost":2}"#);
    let reply = check(&mut raw, r#"{"user":"a"}"#);
    assert_eq!((reply.status, reply.json()["reason"].as_str()), (429, Some("window")));
    assert_eq!(reply.json()["type"], "https://iana.org/assignments/http-problem-types#abnormal-usage-detected");
}

#[test]
fn case_106_reset_is_not_zero_when_it_matters() {
    let (_server, mut raw) = start(&[(Field::Algorithm, "sliding_window"), (Field::WindowLimit, "2")]);
    for left in [1, 0] {
        let reply = check(&mut raw, r#"{"user":"a"}"#);
        assert_eq!((reply.status, reply.json()["remaining"].as_i64()), (200, Some(left)));
        assert_eq!(reply.header("x-ratelimit-reset"), Some("1700000060"));
    }
    let reply = check(&mut raw, r#"{"user":"a"}"#);
    assert_eq!((reply.status, reply.header("retry-after"), reply.header("ratelimit")), (429, Some("60"), Some(r#""window";r=0;t=60"#)));
    assert_eq!(reply.header("x-ratelimit-reset"), Some("1700000060"));
}

#[test]
fn blocked_bypassed_and_shadowed_subjects_are_told_so() {
    let (_server, mut raw) = start(&[(Field::Mode, "block")]);
    let reply = check(&mut raw, r#"{"user":"a"}"#);
    assert_eq!((reply.status, reply.json()["code"].as_str(), reply.header("x-should-retry")), (403, Some("blocked"), Some("false")));
    assert_eq!((reply.header("retry-after"), reply.header("ratelimit")), (None, None));

    let (_server, mut raw) = start(&[(Field::Mode, "bypass")]);
    let reply = check(&mut raw, r#"{"user":"a"}"#);
    assert_eq!((reply.status, reply.header("ratelimit"), reply.header("x-ratelimit-limit")), (200, None, None));
    assert_eq!(
        reply.json(),
        json!({"allowed":true,"subject":"a","limit":null,"remaining":null,"reset_after":null,"retry_after":0,"breaker":"closed","reason":null})
    );

    let (_server, mut raw) = start(&[(Field::Mode, "shadow"), (Field::BucketCapacity, "1")]);
    check(&mut raw, r#"{"user":"a"}"#);
    let reply = check(&mut raw, r#"{"user":"a"}"#);
    assert_eq!((reply.status, &reply.json()["would_refuse"], &reply.json()["reason"]), (200, &json!(true), &json!("bucket")));
}

#[test]
fn a_cost_that_can_never_fit_is_422_without_a_wait() {
    let (_server, mut raw) = start(&[]);
    let reply = check(&mut raw, r#"{"user":"a","cost":101}"#);
    assert_eq!((reply.status, reply.json()["code"].as_str()), (422, Some("cost_exceeds_limit")));
    assert_eq!((reply.header("x-should-retry"), reply.header("retry-after")), (Some("false"), None));
}

#[test]
fn a_wait_above_a_minute_is_not_worth_a_retry() {
    let (_server, mut raw) = start(&[(Field::TokensPerSecond, "0.01"), (Field::BucketCapacity, "1")]);
    check(&mut raw, r#"{"user":"a"}"#);
    let reply = check(&mut raw, r#"{"user":"a"}"#);
    assert_eq!((reply.status, reply.header("retry-after"), reply.header("x-should-retry")), (429, Some("100"), Some("false")));
}

#[test]
fn families_of_headers_can_be_turned_off() {
    let (mut setup, _clock) = setup(&[(Field::BucketCapacity, "1")]);
    setup.settings.headers = "none".parse::<Families>().unwrap();
    let server = setup.start();
    let mut raw = server.connect();
    check(&mut raw, r#"{"user":"a"}"#);
    let reply = check(&mut raw, r#"{"user":"a"}"#);
    assert_eq!(reply.status, 429);
    for name in ["ratelimit", "ratelimit-policy", "x-ratelimit-limit", "retry-after-ms", "x-should-retry"] {
        assert_eq!(reply.header(name), None, "{name}");
    }
    assert_eq!(reply.header("retry-after"), Some("1"), "plain HTTP stays");
}

#[test]
fn case_35_what_is_no_cost_is_400_and_gives_nothing_back() {
    let (server, mut raw) = start(&[(Field::BucketCapacity, "10"), (Field::TokensPerSecond, "0.001")]);
    check(&mut raw, r#"{"user":"a","cost":7}"#);
    for cost in
        ["-5", "-1", "-9223372036854775808", "\"5\"", "1.5", "1e400", "null", "true", "[]", "18446744073709551615", "9007199254740993"]
    {
        let reply = check(&mut raw, &format!(r#"{{"user":"a","cost":{cost}}}"#));
        assert_eq!((reply.status, reply.json()["code"].as_str()), (400, Some("invalid_body")), "{cost}: {}", reply.body);
    }
    assert_eq!(server.decisions(), 1.0, "the store was asked");
    assert_eq!(check(&mut raw, r#"{"user":"a","cost":0}"#).json()["remaining"], 3);
    assert_eq!(check(&mut raw, r#"{"user":"a","cost":3.0}"#).json()["remaining"], 0);
}

#[test]
fn case_20_each_id_is_its_own_and_forbidden_ones_touch_no_store() {
    let (server, mut raw) = start(&[(Field::BucketCapacity, "2"), (Field::TokensPerSecond, "0.001")]);
    for id in ["two words", "用户", "e\u{301}", "\u{e9}", "😀", "../x", "*", "%2F", "ip:127.0.0.1", "anon:"] {
        let body = json!({ "user": id }).to_string();
        let statuses = [(); 3].map(|()| check(&mut raw, &body).status);
        assert_eq!(statuses, [200, 200, 429], "{id:?}");
    }
    let decided = server.decisions();
    for body in [
        json!({ "user": "" }).to_string(),
        json!({ "user": "a\nb" }).to_string(),
        json!({ "user": "a\u{0}b" }).to_string(),
        json!({ "user": "a\r\nSET x 1" }).to_string(),
        json!({ "user": "x".repeat(257) }).to_string(),
        r#"{"user":"\ud800"}"#.to_owned(),
        r#"{"user":7}"#.to_owned(),
    ] {
        assert_eq!(check(&mut raw, &body).status, 400, "{body}");
    }
    assert_eq!(server.decisions(), decided);
}

#[test]
fn without_a_user_the_address_that_a_trusted_proxy_names_is_limited() {
    let (_server, mut raw) = start(&[]);
    assert_eq!(raw.check("", "").unwrap().json()["subject"], json!("ip:127.0.0.1"));
    let reply = raw.check("X-Forwarded-For: 203.0.113.9\r\nForwarded: for=203.0.113.9\r\n", "").unwrap();
    assert_eq!((reply.status, &reply.json()["subject"]), (200, &json!("ip:203.0.113.9")));
}
