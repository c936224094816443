//! Every key of the file and the section it stands in. Who reads a section takes its keys from here, and so does the hint for a
//! key at the wrong level.

use crate::limit::Field;

/// The top of the file.
pub(in crate::config) const SECTIONS: [&str; 6] = ["defaults", "tiers", "routes", "anonymous", "identity", "store"];

/// Other keys by where they belong.
const OTHERS: [(&str, &[&str]); 6] = [
    ("in an entry of routes", &["name", "match", "cost", "limits", "on_store_failure"]),
    ("under match, in an entry of routes", &["path", "methods"]),
    ("under anonymous", &["shared", "per_address"]),
    ("under store", &["on_failure"]),
    (
        "under identity",
        &["trusted_peers", "trusted_proxies", "api_key_header", "user_id_header", "auth_headers", "ipv6_prefix"],
    ),
    ("nowhere in this file: it is set with a flag or a WEIR_ variable", &["redis", "redis_url", "bind", "listen", "admin_tokens", "password"]),
];

/// Where a key belongs that is not known where it stands, if it is known at all.
pub(in crate::config) fn belongs(key: &str) -> Option<String> {
    if SECTIONS.contains(&key) {
        return Some(format!("{key} belongs at the top of the file"));
    }
    if Field::from_name(key).is_some() {
        return Some(format!("{key} belongs under defaults, a tier, a route's limits, or anonymous.shared and anonymous.per_address"));
    }
    let (place, _) = OTHERS.iter().find(|(_, keys)| keys.contains(&key))?;
    Some(format!("{key} belongs {place}"))
}
