//! Many checks in one request.

use serde_json::{Value, json};
use weir::limit::Field;

use crate::support::server::{Raw, Reply, Setup, TestServer, limits};

fn start() -> (TestServer, Raw) {
    let server = Setup::default().config(limits(&[(Field::BucketCapacity, "2"), (Field::TokensPerSecond, "0.001")])).start();
    let raw = server.connect();
    (server, raw)
}

fn batch(raw: &mut Raw, body: &str) -> Reply {
    raw.send(format!("POST /v1/check/batch HTTP/1.1\r\nHost: weir\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    raw.reply().expect("an answer")
}

#[test]
fn answers_come_in_order_and_a_bad_item_is_only_its_own_error() {
    let (server, mut raw) = start();
    let body = json!({ "checks": [{"user":"a"}, {"user":"b","cost":-1}, {"user":"a"}, 7, {"user":"a"}, {"usr":"c"}, {"user":"c","cost":3}, ["d"]] });
    let reply = batch(&mut raw, &body.to_string());
    assert_eq!(reply.status, 200);
    let answers = reply.json()["answers"].as_array().unwrap().clone();
    let words: Vec<Value> = answers.iter().map(|answer| answer.get("code").unwrap_or(&answer["remaining"]).clone()).collect();
    assert_eq!(
        json!(words),
        json!([1, "invalid_body", 0, "invalid_body", "rate_limit_exceeded", "invalid_body", "cost_exceeds_limit", "invalid_body"])
    );
    assert_eq!(server.decisions(), 4.0, "what is wrong was asked of the store");
}

#[test]
fn a_thousand_checks_fit_and_one_more_does_not() {
    let (server, mut raw) = start();
    let of =
        |count: usize| json!({ "checks": (0..count).map(|user| json!({ "user": format!("u{user}") })).collect::<Vec<_>>() }).to_string();
    let answers = batch(&mut raw, &of(1_000)).json()["answers"].as_array().unwrap().clone();
    assert_eq!(answers.len(), 1_000);
    for (user, answer) in answers.iter().enumerate() {
        assert_eq!(answer["subject"], format!("u{user}"));
    }
    let reply = batch(&mut raw, &of(1_001));
    assert_eq!((reply.status, reply.json()["code"].as_str()), (400, Some("too_many_checks")));
    assert_eq!(server.decisions(), 1_000.0);
}

#[test]
fn a_batch_without_checks_is_empty_and_one_that_is_none_is_400() {
    let (_server, mut raw) = start();
    assert_eq!(batch(&mut raw, r#"{"checks":[]}"#).body, r#"{"answers":[]}"#);
    for body in ["", "[]", "{}", r#"{"checks":{}}"#, r#"{"checks":[],"more":1}"#, r#"{"checks":[{]}"#] {
        assert_eq!(batch(&mut raw, body).status, 400, "{body}");
    }
}
