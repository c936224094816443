//! Every counter counts what it says.

use std::fs;

use crate::eventually;
use crate::scrape::{post, scrape, value};
use crate::support::redis::RedisServer;
use crate::support::server::{Process, Raw};

const LIMITS: &str = "\
defaults: {bucket_capacity: 10, tokens_per_second: 1, window_limit: 20, window_seconds: 60, breaker_ratio: 3}
tiers:
  gold: {bucket_capacity: 50, window_limit: 100}
routes:
  - {name: search, match: {path: /search}}
  - {name: strict, match: {path: /strict}, on_store_failure: deny}
anonymous:
  shared: {bucket_capacity: 2, tokens_per_second: 0.001}
  per_address: {window_limit: 5}
";

/// The service with these limits, and a token for it.
fn start(folder: &tempfile::TempDir, more: &[&str]) -> (Process, String) {
    let path = folder.path().join("limit.yaml");
    fs::write(&path, LIMITS).unwrap();
    let process = Process::start(&[&["--config", path.to_str().unwrap()], more].concat());
    let token = process.token();
    (process, token)
}

#[test]
fn decisions_are_counted_by_what_was_answered_by_route_and_by_tier() {
    let folder = tempfile::tempdir().unwrap();
    let (process, token) = start(&folder, &[]);
    let mut raw = Raw::connect(process.address);
    let count = |raw: &mut Raw, series: &str| value(&scrape(raw), series);
    for _ in 0..12 {
        raw.check("", r#"{"user":"a","path":"/search"}"#).unwrap();
    }
    let text = scrape(&mut raw);
    assert_eq!(value(&text, r#"weir_route_decisions_total{outcome="admitted",route="search"}"#), 10.0);
    assert_eq!(value(&text, r#"weir_route_decisions_total{outcome="refused",route="search"}"#), 2.0);
    // Of ten the last three leave two, one and none.
    assert_eq!(value(&text, "weir_near_limit_decisions_total"), 3.0);
    assert_eq!(value(&text, "weir_decision_duration_seconds_count"), 12.0);
    assert_eq!((value(&text, "weir_breaker_openings_total"), value(&text, "weir_breaker_open_subjects")), (1.0, 1.0));

    // Three times one and the same address: the first from the shared bucket, then that has a storm and its own window decides. Each is
    // one request, however often the store was asked.
    for _ in 0..3 {
        assert_eq!(raw.check("", r#"{"address":"203.0.113.9"}"#).unwrap().status, 200);
    }
    assert_eq!(count(&mut raw, r#"weir_route_decisions_total{outcome="admitted",route="-"}"#), 3.0);
    assert_eq!(count(&mut raw, r#"weir_decisions_total{outcome="admitted",reason="none"}"#), 13.0);

    let head = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(post(&mut raw, "/admin/rate-limit/config?user_id=g", &head, r#"{"tier":"gold"}"#).status, 200);
    assert_eq!(post(&mut raw, "/admin/rate-limit/config?user_id=s", &head, r#"{"mode":"shadow","bucket_capacity":1}"#).status, 200);
    post(&mut raw, "/admin/rate-limit/config?user_id=g", "Authorization: Bearer wrong\r\n", "{}");
    for _ in 0..20 {
        assert_eq!(raw.check("", r#"{"user":"g"}"#).unwrap().status, 200);
    }
    for _ in 0..2 {
        assert_eq!(raw.check("", r#"{"user":"s"}"#).unwrap().status, 200);
    }
    let text = scrape(&mut raw);
    assert_eq!(value(&text, r#"weir_tier_decisions_total{outcome="admitted",tier="gold"}"#), 20.0);
    assert_eq!(value(&text, r#"weir_decisions_total{outcome="would_refuse",reason="bucket"}"#), 1.0);
    assert_eq!((value(&text, "weir_admin_writes_total"), value(&text, "weir_admin_failed_logins_total")), (2.0, 1.0));
    assert!(value(&text, "weir_override_cache_invalidations_total") >= 2.0);
    // a, the address, g and s were looked up once each; everything else was remembered.
    assert_eq!((value(&text, "weir_override_cache_misses_total"), value(&text, "weir_override_cache_entries")), (4.0, 4.0));
    assert_eq!(value(&text, "weir_override_cache_hits_total"), 11.0 + 1.0 + 19.0 + 1.0);
    assert_eq!((value(&text, "weir_store_up"), value(&text, "weir_memory_subjects_limit") > 0.0), (1.0, true));
    assert_eq!(value(&text, "weir_config_last_reload_successful"), 1.0);
}

#[test]
fn a_store_that_goes_away_shows_and_what_is_answered_meanwhile_is_counted() {
    let redis = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let (process, _) = start(&folder, &["--redis-url", &redis.url(), "--redis-deadline-ms", "5000"]);
    let mut raw = Raw::connect(process.address);
    eventually(|| value(&scrape(&mut raw), "weir_store_up") == 1.0, "the store is up");
    assert_eq!(raw.check("", r#"{"user":"a"}"#).unwrap().status, 200);
    drop(redis);
    eventually(|| value(&scrape(&mut raw), "weir_store_up") == 0.0, "the store is down");
    for _ in 0..5 {
        assert_eq!(raw.check("", r#"{"user":"a"}"#).unwrap().status, 200);
        assert_eq!(raw.check("", r#"{"user":"a","path":"/strict"}"#).unwrap().status, 503);
    }
    let text = scrape(&mut raw);
    assert_eq!(value(&text, r#"weir_degraded_decisions_total{policy="local"}"#), 5.0);
    assert_eq!(value(&text, r#"weir_degraded_decisions_total{policy="deny"}"#), 5.0);
    assert_eq!(value(&text, r#"weir_decisions_total{outcome="admitted",reason="none"}"#), 6.0);
    assert_eq!((value(&text, "weir_store_left_alone"), value(&text, "weir_store_calls_in_flight")), (1.0, 0.0));
    let errors = |kind: &str| value(&text, &format!(r#"weir_store_errors_total{{kind="{kind}"}}"#));
    assert!(errors("connection") >= 1.0 && errors("unavailable") >= 1.0, "{text}");
}
