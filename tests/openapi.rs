//! The description of the API is what is checked in, and the page that shows it works offline.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::fs;

use support::server::{Raw, Reply, Setup};
use weir::http::{Settings, openapi};

fn get(raw: &mut Raw, path: &str) -> Reply {
    raw.send(format!("GET {path} HTTP/1.1\r\nHost: weir\r\n\r\n"));
    raw.reply().expect("an answer")
}

#[test]
fn the_checked_in_description_is_the_codes() {
    let now = openapi().to_yaml().unwrap();
    let checked_in = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.yaml")).unwrap_or_default();
    if checked_in != now {
        let fresh = concat!(env!("CARGO_TARGET_TMPDIR"), "/openapi.yaml");
        fs::write(fresh, &now).unwrap();
        panic!("docs/openapi.yaml is behind: cp {fresh} docs/openapi.yaml");
    }
}

#[test]
fn the_service_describes_itself_and_can_be_told_not_to() {
    let service = Setup::default().start();
    let served = get(&mut service.connect(), "/openapi.json");
    assert_eq!((served.status, served.header("content-type")), (200, Some("application/json")));
    assert_eq!(served.json(), serde_json::from_str::<serde_json::Value>(&openapi().to_json().unwrap()).unwrap());
    let silent = Setup { settings: Settings { docs: false, ..Settings::default() }, ..Setup::default() }.start();
    for path in ["/openapi.json", "/docs", "/docs/rapidoc-min.js"] {
        assert_eq!(get(&mut silent.connect(), path).status, 404, "{path}");
    }
    assert_eq!(service.decisions() + silent.decisions(), 0.0);
}
