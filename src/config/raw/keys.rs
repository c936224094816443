//! Every key of the file and where it belongs: the hint for a right key at the wrong level. A test holds the schema against it.

use crate::limit::Field;

/// The top of the file.
const SECTIONS: [&str; 6] = ["defaults", "tiers", "routes", "anonymous", "identity", "store"];

/// Other keys by where they belong.
const OTHERS: [(&str, &[&str]); 6] = [
    ("in an entry of routes", &["name", "match", "cost", "limits", "on_store_failure"]),
    ("under match, in an entry of routes", &["path", "methods"]),
    ("under anonymous", &["shared", "per_address"]),
    ("under store", &["on_failure"]),
    ("under identity", &["trusted_peers", "trusted_proxies", "api_key_header", "user_id_header", "auth_headers", "ipv6_prefix"]),
    (
        "nowhere in this file: it is set with a flag or a WEIR_ variable",
        &["redis", "redis_url", "bind", "listen", "admin_tokens", "password"],
    ),
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::config::schema;

    /// Every key of every object in a schema.
    fn keys(schema: &Value, found: &mut Vec<String>) {
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            found.extend(properties.keys().cloned());
        }
        match schema {
            Value::Object(map) => map.values().for_each(|value| keys(value, found)),
            Value::Array(list) => list.iter().for_each(|value| keys(value, found)),
            _ => {}
        }
    }

    #[test]
    fn it_is_known_where_each_key_of_the_file_belongs() {
        let mut found = Vec::new();
        keys(&schema(), &mut found);
        assert!(found.len() > 40, "{found:?}");
        let unknown: Vec<_> = found.iter().filter(|key| belongs(key).is_none()).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
