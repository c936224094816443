//! `/v1/auth`: what a proxy is told, whom it is believed about, and what its clients cannot change.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;

use weir::clock::ManualClock;
use weir::config::Config;
use weir::limit::US;

use crate::support::server::{Raw, Reply, Setup, TestServer};

const NOW: i64 = 1_700_000_000 * US;
/// Trusted about addresses and about users.
const PROXY: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 9);
/// Nobody.
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 9, 9, 9);

const IDENTITY: &str =
    "identity: {trusted_peers: [127.1.0.0/16], trusted_proxies: [127.1.0.0/16], auth_headers: [X-User-ID, X-Login, X-API-Key]}\n";
/// Five for each, and no more within an hour; exports cost five and have a bucket of their own of ten.
const LIMITS: &str = "\
defaults: {algorithm: sliding_window, window_limit: 5, window_seconds: 3600}
anonymous: {per_address: {window_limit: 5, window_seconds: 3600}}
routes:
  - {name: export, match: {path: /export/*}, cost: 5, limits: {window_limit: 10}}
  - {name: upload, match: {path: /item/*, methods: [PUT]}, limits: {window_limit: 1}}
";

struct Service {
    server: TestServer,
    clock: Arc<ManualClock>,
}

impl Service {
    fn start(yaml: &str) -> Self {
        let clock = Arc::new(ManualClock::new(NOW));
        let config = Config::from_yaml(yaml).expect("good limits").0;
        Self { server: Setup::with_clock(clock.clone()).config(config).start(), clock }
    }

    fn usual() -> Self {
        Self::start(&format!("{IDENTITY}{LIMITS}"))
    }

    fn from(&self, source: Ipv4Addr) -> Raw {
        Raw::connect_from(source, self.server.address)
    }

    /// How many of requests with these targets and header lines are let through, on a connection from `source`.
    fn passed(&self, source: Ipv4Addr, requests: impl IntoIterator<Item = (String, String)>) -> usize {
        let mut raw = self.from(source);
        requests.into_iter().filter(|(target, headers)| ask(&mut raw, "GET", target, headers).status == 200).count()
    }
}

#[track_caller]
fn ask(raw: &mut Raw, method: &str, target: &str, headers: &str) -> Reply {
    raw.send(format!("{method} {target} HTTP/1.1\r\nHost: weir\r\n{headers}\r\n")).reply().expect("an answer")
}

/// The same request over and over.
fn same(times: usize, target: &str, headers: &str) -> Vec<(String, String)> {
    vec![(target.to_owned(), headers.to_owned()); times]
}

fn forwarded_for(address: impl std::fmt::Display) -> String {
    format!("X-Forwarded-For: {address}\r\n")
}

#[test]
fn an_admission_is_exactly_200_and_a_refusal_is_the_checks() {
    let service = Service::usual();
    let mut raw = service.from(PROXY);
    for left in (0..5).rev() {
        let reply = ask(&mut raw, "GET", "/v1/auth", &forwarded_for("203.0.113.5"));
        assert_eq!((reply.status, reply.header("x-weir-status"), reply.header("x-weir-reason")), (200, Some("200"), None));
        assert_eq!(reply.header("ratelimit").unwrap(), format!(r#""window";r={left};t=3600"#));
    }
    let reply = ask(&mut raw, "GET", "/v1/auth", &forwarded_for("203.0.113.5"));
    assert_eq!((reply.status, reply.header("x-weir-status"), reply.header("x-weir-reason")), (429, Some("429"), Some("window")));
    assert_eq!((reply.header("retry-after"), reply.header("content-type")), (Some("3600"), Some("application/problem+json")));
    assert_eq!(reply.json()["code"], "rate_limit_exceeded");
    service.clock.advance(3600 * US);
    assert_eq!(ask(&mut raw, "GET", "/v1/auth", &forwarded_for("203.0.113.5")).status, 200);
}

#[test]
fn every_other_outcome_has_the_status_that_the_proxy_can_carry_and_tells_the_true_one() {
    let away = "store: {on_failure: deny}\n";
    let service = Service::start(&format!("{IDENTITY}{away}defaults: {{bucket_capacity: 1, tokens_per_second: 0.01}}\n"));
    let mut raw = service.from(PROXY);
    let user = "X-User-ID: u\r\n";
    for (target, headers, status, reason) in [
        ("/v1/auth?deny_status=403", user, "200", None),
        ("/v1/auth?deny_status=403", user, "429", Some("bucket")),
        ("/v1/auth?deny_status=403&cost=2", user, "422", Some("cost_exceeds_limit")),
        ("/v1/auth?cost=0&deny_status=403", user, "400", Some("invalid_cost")),
        ("/v1/auth?deny_status=403&route=none", user, "400", Some("unknown_route")),
        ("/v1/auth?page=2&deny_status=403", user, "400", Some("unknown_parameter")),
        ("/v1/auth?deny_status=403&user=%FF", "", "400", Some("invalid_user")),
        ("/v1/auth?deny_status=403&user=a%0Ab", "", "400", Some("invalid_user")),
        ("/v1/auth?deny_status=403", "X-User-ID: a\r\nX-User-ID: b\r\n", "400", Some("invalid_user")),
        ("/v1/auth?deny_status=403", "X-API-Key: two words\r\n", "400", Some("invalid_api_key")),
        ("/v1/auth?deny_status=403", "X-Original-URI: /a\r\nX-Forwarded-Uri: /b\r\n", "400", Some("ambiguous_request")),
        ("/v1/auth?deny_status=403", "X-Original-Method: GET\r\nX-Forwarded-Method: PUT\r\n", "400", Some("ambiguous_request")),
    ] {
        let reply = ask(&mut raw, "GET", target, headers);
        let expected = if status == "200" { 200 } else { 403 };
        let found = (reply.status, reply.header("x-weir-status"), reply.header("x-weir-reason"));
        assert_eq!(found, (expected, Some(status), reason), "{target} {headers:?}: {}", reply.body);
        assert_eq!(reply.header("retry-after").is_some(), status == "429", "{target} {headers:?}");
    }
    assert_eq!(service.server.decisions(), 3.0, "what is wrong is asked of no store");
    for wrong in ["200", "204", "302", "399", "600", "no", "", "+403", "99999999999"] {
        let reply = ask(&mut raw, "GET", &format!("/v1/auth?deny_status={wrong}"), user);
        assert_eq!((reply.status, reply.header("x-weir-reason")), (400, Some("invalid_deny_status")), "{wrong}");
    }
}

#[test]
fn a_blocked_client_and_a_store_that_is_away_are_told_through_deny_status_too() {
    let service = Service::start(&format!("{IDENTITY}defaults: {{mode: block}}\n"));
    let reply = ask(&mut service.from(PROXY), "GET", "/v1/auth?deny_status=401", "X-User-ID: u\r\n");
    assert_eq!((reply.status, reply.header("x-weir-status"), reply.header("x-weir-reason")), (401, Some("403"), Some("blocked")));
    assert_eq!(reply.header("retry-after"), None);

    let config = Config::from_yaml("store: {on_failure: deny}\n").unwrap().0;
    let server = Setup { store: Arc::new(super::hygiene::Away), config, ..Setup::default() }.start();
    let mut raw = server.connect();
    let reply = ask(&mut raw, "GET", "/v1/auth?deny_status=403", "");
    assert_eq!((reply.status, reply.header("x-weir-status"), reply.header("x-weir-reason")), (403, Some("503"), Some("store_unavailable")));
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(ask(&mut raw, "GET", "/v1/auth", "").status, 503);
}

#[test]
fn cost_0_is_400_at_this_door_however_it_is_written() {
    let service = Service::usual();
    let mut raw = service.from(PROXY);
    for cost in ["0", "00", "-1", "1.5", "", "1e3", "+1", "%2B1", "0x1", "1000000001", "99999999999999999999", "1&cost=0", "0&cost=1"] {
        let reply = ask(&mut raw, "GET", &format!("/v1/auth?cost={cost}"), "");
        assert_eq!(reply.status, 400, "{cost}: {}", reply.body);
    }
    assert_eq!(service.server.decisions(), 0.0);
    let reply = ask(&mut raw, "GET", "/v1/auth?cost=4&user=a", "");
    assert_eq!((reply.status, reply.header("x-ratelimit-remaining")), (200, Some("1")));
}

#[test]
fn every_method_is_charged_and_every_body_is_read_and_ignored() {
    let service = Service::start(&format!("{IDENTITY}defaults: {{algorithm: sliding_window, window_limit: 100}}\n"));
    let mut raw = service.from(PROXY);
    let mut left = 100;
    for target in ["/v1/auth", "/v1/auth/", "/v1/auth/item/7?cost=0"] {
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "HEAD"] {
            for body in ["", r#"{"user":"somebody","cost":0}"#, "\u{1}no JSON"] {
                let length =
                    if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\nContent-Encoding: gzip\r\n", body.len()) };
                raw.send(format!(
                    "{method} {target} HTTP/1.1\r\nHost: weir\r\nX-User-ID: u\r\nContent-Type: text/plain\r\n{length}\r\n{body}"
                ));
                let reply = if method == "HEAD" { raw.head_reply() } else { raw.reply() }.expect("an answer");
                left -= 1;
                assert_eq!(
                    (reply.status, reply.header("x-ratelimit-remaining")),
                    (200, Some(left.to_string().as_str())),
                    "{method} {target}"
                );
            }
        }
    }
}

#[test]
fn preflights_that_a_proxy_asks_about_are_charged_although_weirs_own_are_not() {
    let mut setup = Setup::default().config(Config::from_yaml("anonymous: {per_address: {window_limit: 2}}\n").unwrap().0);
    setup.settings.cors_origins = vec!["*".to_owned()];
    let server = setup.start();
    let preflight = "Origin: https://app.example\r\nAccess-Control-Request-Method: POST\r\n";
    let mut raw = server.connect();
    let statuses = ["/v1/auth", "/v1/auth/page", "/v1/auth"].map(|target| {
        let reply = ask(&mut raw, "OPTIONS", target, preflight);
        assert_eq!(reply.header("access-control-allow-origin"), None, "the page is the origin's to let in");
        reply.status
    });
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(ask(&mut raw, "OPTIONS", "/v1/check", preflight).status, 200);
    assert_eq!(server.decisions(), 3.0);
}

#[test]
fn query_parameters_count_on_exactly_the_path_and_below_it_they_are_the_clients() {
    let service = Service::usual();
    let queries = (0..20).map(|n| (format!("/v1/auth/item?user=u{n}&cost=0&route=export&deny_status=599"), forwarded_for("203.0.113.5")));
    assert_eq!(service.passed(PROXY, queries), 5, "one client, at the price of one each");
    let reply = ask(&mut service.from(PROXY), "GET", "/v1/auth/item?deny_status=599", &forwarded_for("203.0.113.5"));
    assert_eq!(reply.status, 429);
    assert_eq!(service.passed(PROXY, same(6, "/v1/auth?user=alice", "")), 5, "the operator's own query names a user");
    assert_eq!(service.passed(PROXY, same(3, "/v1/auth?user=alice&route=export", "")), 2, "and a route");
    assert_eq!(service.passed(PROXY, same(6, "/v1/auth?user=", &forwarded_for("203.0.113.7"))), 5, "an empty user is nobody");
}

#[test]
fn the_original_path_and_method_come_from_each_proxys_headers() {
    let service = Service::usual();
    for (n, (target, headers)) in [
        ("/v1/auth", "X-Original-URI: /export/7?x=1\r\nX-Original-Method: GET\r\n"),
        ("/v1/auth", "X-Original-URL: https://example.org/export/7\r\nX-Original-Method: GET\r\n"),
        ("/v1/auth", "X-Forwarded-Uri: /export/7?cost=0\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Host: example.org\r\n"),
        ("/v1/auth", "X-Original-URI: /%65xport/7\r\n"),
        ("/v1/auth", "X-Original-URI: //export/./7\r\nX-Forwarded-Uri: \r\n"),
        ("/v1/auth/export/7?x=1", ""),
        ("/v1/auth/%65xport/7", "X-Original-URI: /item/7\r\n"),
        ("/v1/auth//export//7", ""),
        ("/v1/auth/a/../export/7", "X-Forwarded-Uri: /item/7\r\n"),
    ]
    .into_iter()
    .enumerate()
    {
        let headers = format!("X-User-ID: u{n}\r\n{headers}");
        assert_eq!(service.passed(PROXY, same(4, target, &headers)), 2, "{target} {headers}");
    }
    for (target, method, headers) in [
        ("/v1/auth", "GET", "X-Original-URI: /item/7\r\nX-Original-Method: PUT\r\n"),
        ("/v1/auth", "GET", "X-Forwarded-Uri: /item/7\r\nX-Forwarded-Method: put\r\n"),
        ("/v1/auth/item/7", "PUT", "X-Original-Method: GET\r\nX-Forwarded-Method: GET\r\n"),
    ] {
        let headers = format!("X-User-ID: {}{method}\r\n{headers}", headers.len());
        let mut raw = service.from(PROXY);
        let statuses = [(); 2].map(|()| ask(&mut raw, method, target, &headers).status);
        assert_eq!(statuses, [200, 429], "{method} {target} {headers}");
    }
}

#[test]
fn the_original_request_is_believed_from_trusted_proxies_only() {
    let service = Service::usual();
    let told = "X-Original-URI: /export/7\r\nX-Original-Method: GET\r\nX-Forwarded-Uri: /other\r\n";
    assert_eq!(service.passed(STRANGER, same(6, "/v1/auth", told)), 5, "five at the price of one each");
    let only_peer = Service::start(&format!("identity: {{trusted_peers: [127.1.0.0/16], trusted_proxies: []}}\n{LIMITS}"));
    assert_eq!(only_peer.passed(PROXY, same(6, "/v1/auth", "X-Original-URI: /export/7\r\n")), 5);
}

#[test]
fn only_auth_headers_say_who_the_user_is() {
    let made_up = |n: usize| format!("X-User-ID: u{n}\r\nX-API-Key: k{n}\r\nX-Login: l{n}\r\n{}", forwarded_for("203.0.113.5"));
    let none = Service::start(&format!("identity: {{trusted_peers: [127.1.0.0/16], trusted_proxies: [127.1.0.0/16]}}\n{LIMITS}"));
    assert_eq!(none.passed(PROXY, (0..20).map(|n| ("/v1/auth".to_owned(), made_up(n)))), 5, "no headers named: the address decides");

    let service = Service::usual();
    assert_eq!(service.passed(PROXY, same(6, "/v1/auth", "X-Login: bob\r\n")), 5);
    assert_eq!(service.passed(PROXY, same(2, "/v1/auth", "X-User-ID: bob\r\n")), 0, "both headers name the same user");
    assert_eq!(service.passed(PROXY, same(2, "/v1/auth", "X-User-ID: bob\r\nX-Login: carol\r\n")), 0, "in the operator's order");
    assert_eq!(service.passed(PROXY, same(2, "/v1/auth", "X-User-ID: \r\nX-Login: bob\r\n")), 0, "an empty one says nothing");
    assert_eq!(service.passed(PROXY, same(6, "/v1/auth", "X-API-Key: secret\r\nX-User-ID: bob\r\n")), 5, "a key comes first");
    let check = service.from(PROXY).check("X-API-Key: secret\r\n", r#"{"cost":0}"#).unwrap();
    assert_eq!((check.json()["remaining"].as_i64(), check.json()["subject"].as_str().unwrap().starts_with("key:")), (Some(0), true));

    let without_key = IDENTITY.replace(", X-API-Key", "");
    let service = Service::start(&format!("{without_key}{LIMITS}"));
    let keys = (0..20).map(|n| ("/v1/auth".to_owned(), format!("X-API-Key: k{n}\r\n{}", forwarded_for("203.0.113.5"))));
    assert_eq!(service.passed(PROXY, keys), 5, "a key that is not named is not looked at");
}

#[test]
fn case_1_2_and_17_whatever_a_stranger_claims_its_address_decides() {
    for claim in [
        "X-Forwarded-For: 10.0.0.",
        "X-Real-IP: 10.0.0.",
        "Forwarded: for=10.0.0.",
        "True-Client-IP: 10.0.0.",
        "CF-Connecting-IP: 10.0.0.",
        "X-User-ID: made-up-",
        "X-API-Key: made-up-",
        "X-Login: made-up-",
    ] {
        let service = Service::usual();
        let requests = (0..20).map(|n| ("/v1/auth".to_owned(), format!("{claim}{n}\r\n")));
        assert_eq!(service.passed(STRANGER, requests), 5, "{claim}");
        assert_eq!(service.passed(STRANGER, same(1, "/v1/auth", "")), 0, "the same subject without {claim}");
        let users = (0..5).map(|n| (format!("/v1/auth?user=u{n}"), String::new()));
        assert_eq!(service.passed(STRANGER, users), 0, "nor does a query name it");
    }
}

#[test]
fn case_3_4_and_5_the_clients_address_is_the_right_most_that_is_no_proxys() {
    let service = Service::usual();
    let lines =
        (0..20).map(|n| ("/v1/auth".to_owned(), format!("{}{}", forwarded_for(format!("198.51.100.{n}")), forwarded_for("203.0.113.5"))));
    assert_eq!(service.passed(PROXY, lines), 5, "two lines are one list");
    for same_client in
        ["192.0.2.99, 127.1.0.9, 203.0.113.5", "192.0.2.99, 203.0.113.5, 127.1.0.9", "203.0.113.5:40001", "::ffff:203.0.113.5"]
    {
        assert_eq!(service.passed(PROXY, same(1, "/v1/auth", &forwarded_for(same_client))), 0, "{same_client}");
    }
    assert_eq!(service.passed(PROXY, same(6, "/v1/auth", &forwarded_for("127.1.0.2, 127.1.0.9"))), 5, "all trusted: the left-most");
    let ports = (40_001..40_011).map(|port| ("/v1/auth".to_owned(), forwarded_for(format!("[2001:db8:1::5]:{port}"))));
    assert_eq!(service.passed(PROXY, ports), 5);
}

#[test]
fn case_7_8_10_and_11_clients_are_told_apart_and_proxies_ask_for_themselves() {
    let service = Service::usual();
    assert_eq!(service.passed(PROXY, same(100, "/v1/auth", &forwarded_for("203.0.113.5"))), 5);
    assert_eq!(service.passed(PROXY, same(1, "/v1/auth", &forwarded_for("203.0.113.6"))), 1);
    for headers in ["", "X-Forwarded-For: \r\n", "X-Forwarded-For: , ,\r\n"] {
        let service = Service::usual();
        assert_eq!(service.passed(PROXY, same(6, "/v1/auth", headers)), 5, "{headers:?}");
        assert_eq!(service.passed(Ipv4Addr::new(127, 1, 0, 10), same(1, "/v1/auth", headers)), 1, "{headers:?}");
    }
    let rotating = (1..=100).map(|n| ("/v1/auth".to_owned(), forwarded_for(format!("2001:db8:aa:1::{n:x}"))));
    assert_eq!(service.passed(PROXY, rotating), 5);
    assert_eq!(service.passed(PROXY, same(1, "/v1/auth", &forwarded_for("2001:db8:aa:2::1"))), 1);
    let wide = Service::start(&format!("{}{LIMITS}", IDENTITY.replace("identity: {", "identity: {ipv6_prefix: 56, ")));
    let networks = (0..256).map(|n| ("/v1/auth".to_owned(), forwarded_for(format!("2001:db8:aa:1{n:02x}::1"))));
    assert_eq!(wide.passed(PROXY, networks), 5);
}

#[test]
fn case_22_no_bytes_in_headers_or_targets_harm_this_door() {
    let service = Service::usual();
    let mut raw = service.from(PROXY);
    for value in [&b"\xff"[..], b"\xd1\x82", b"", b"%", b"%f", b"://", b"a", b"?", b"/%00", b"/\t"] {
        for name in ["X-Original-URI", "X-Forwarded-Uri", "X-Original-Method", "X-User-ID", "X-API-Key", "X-Forwarded-For", "Forwarded"] {
            raw.send(format!("GET /v1/auth HTTP/1.1\r\nHost: weir\r\n{name}: ")).send(value).send("\r\n\r\n");
            let reply = raw.reply().expect("an answer");
            assert!([200, 400, 429].contains(&reply.status), "{name}: {value:?}: {reply:?}");
        }
    }
    let mut long = String::new();
    for n in 0..2_000 {
        write!(long, "/..%2f{n}").unwrap();
    }
    assert_eq!(ask(&mut raw, "GET", &format!("/v1/auth{long}"), "X-User-ID: long\r\n").status, 200);
    assert_eq!(ask(&mut raw, "GET", "/v1/authority", "").status, 404);
}
