//! The grammar of the header fields of every answer that a test reads.

use super::server::Reply;

/// A member of a structured list: its name and its parameters.
pub type Member = (String, Vec<(String, i64)>);

/// Reads a structured field (RFC 9651) whose members are strings with whole numbers as parameters.
#[track_caller]
pub fn members(text: &str) -> Vec<Member> {
    let list: sfv::List = sfv::Parser::new(text).parse().unwrap_or_else(|error| panic!("{text:?} is no structured list: {error}"));
    list.into_iter()
        .map(|entry| {
            let sfv::ListEntry::Item(item) = entry else { panic!("{text:?} has an inner list") };
            let name = item.bare_item.as_string().unwrap_or_else(|| panic!("{text:?} names a policy by no string"));
            let number = |value: &sfv::BareItem| value.as_integer().map_or_else(|| panic!("{text:?} has no whole number"), i64::from);
            (name.as_str().to_owned(), item.params.iter().map(|(key, value)| (key.as_str().to_owned(), number(value))).collect())
        })
        .collect()
}

/// Holds whatever the service ever says to its own words: no test needs to look.
#[track_caller]
pub fn check(reply: &Reply) {
    if let Some(seconds) = reply.header("retry-after") {
        let whole = seconds.bytes().all(|byte| byte.is_ascii_digit()) && !seconds.starts_with('0') && !seconds.is_empty();
        assert!(whole, "Retry-After: {seconds}");
        assert!(reply.status >= 400, "Retry-After has no place on a {}", reply.status);
    }
    let Some(limits) = reply.header("ratelimit-policy").map(members) else {
        assert_eq!(reply.header("ratelimit"), None, "a state without its policy");
        return;
    };
    for (name, parameters) in &limits {
        assert!(matches!(&parameters[..], [(q, quota), (w, window)] if q == "q" && *quota >= 1 && w == "w" && *window >= 1), "{limits:?}");
        assert!(["bucket", "window"].contains(&name.as_str()), "{limits:?}");
    }
    let states = members(reply.header("ratelimit").expect("a policy without its state"));
    let [(name, parameters)] = &states[..] else { panic!("{states:?}") };
    let limit = limits.iter().find(|(limit, _)| limit == name).unwrap_or_else(|| panic!("{name:?} is none of {limits:?}"));
    assert!(
        matches!(&parameters[..], [(r, left), (t, wait)] if r == "r" && (0..=limit.1[0].1).contains(left) && t == "t" && *wait >= 1),
        "{states:?} of {limits:?}"
    );
    if let (429, Some(seconds)) = (reply.status, reply.header("retry-after")) {
        assert_eq!(seconds.parse(), Ok(parameters[1].1), "two waits in one answer");
    }
}
