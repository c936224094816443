//! The text of `/metrics`, read by the letter.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::server::{Raw, Reply};

/// One name, with everything that is said of it.
#[derive(Debug, Default)]
pub(crate) struct Family {
    pub kind: String,
    pub help: String,
    pub labels: BTreeSet<String>,
}

pub(crate) fn get(raw: &mut Raw, path: &str) -> Reply {
    raw.send(format!("GET {path} HTTP/1.1\r\nHost: weir\r\n\r\n")).reply().expect("an answer")
}

pub(crate) fn post(raw: &mut Raw, path: &str, headers: &str, body: &str) -> Reply {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n");
    raw.send(head).send(body).reply().expect("an answer")
}

pub(crate) fn scrape(raw: &mut Raw) -> String {
    let reply = get(raw, "/metrics");
    assert_eq!(reply.status, 200);
    reply.body
}

/// Every series with its labels, without its value.
pub(crate) fn series(text: &str) -> BTreeSet<String> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').expect("a value").0.to_owned()).collect()
}

/// The value of a series, by its name with labels.
pub(crate) fn value(text: &str, series: &str) -> f64 {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok()).unwrap_or_else(|| panic!("no {series}"))
}

/// Every family, by name.
pub(crate) fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::<String, Family>::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            help.clone_into(&mut families.entry(name.to_owned()).or_default().help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            kind.clone_into(&mut families.entry(name.to_owned()).or_default().kind);
        } else if let Some((name, labels)) = line.split_once('{') {
            let labels = labels.split("\",").filter_map(|label| label.split_once('=')).map(|(label, _)| label.trim_matches(',').to_owned());
            let family =
                ["_bucket", ""].into_iter().find_map(|end| Some(name.strip_suffix(end)?).filter(|name| families.contains_key(*name)));
            let family = families.get_mut(family.expect("a family")).expect("just found");
            family.labels.extend(labels.filter(|label| label != "le"));
        }
    }
    families
}
