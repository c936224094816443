//! The name of a subject's state.

use crate::identity::{Subject, percent_encode};

/// Names the state of one subject, in general or on one route that has limits of its own.
///
/// Two subjects never share a key: in the id of a user every byte outside `A-Z a-z 0-9 . _ ~ @ -` is percent-encoded, so no
/// user id can spell `ip:…`, `key:…`, `anon:`, a brace, or a route.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// `{S}` or `{S}:route:<name>`. Everything of one subject lies in the hash slot of what is between the braces.
    tagged: Box<str>,
}

impl Key {
    /// The key of `subject`, on a route with limits of its own if one is named.
    #[must_use]
    pub fn new(subject: &Subject, route: Option<&str>) -> Self {
        let mut tagged = String::with_capacity(48);
        tagged.push('{');
        match subject {
            Subject::User(id) => percent_encode(id, &mut tagged),
            Subject::ApiKey(hash) => {
                tagged.push_str("key:");
                tagged.push_str(hash);
            }
            Subject::Address(address) => {
                tagged.push_str("ip:");
                tagged.push_str(address);
            }
            Subject::Anonymous => tagged.push_str("anon:"),
        }
        tagged.push('}');
        if let Some(name) = route {
            tagged.push_str(":route:");
            tagged.push_str(name);
        }
        Self { tagged: tagged.into() }
    }

    /// With the braces, as it stands in Redis keys.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.tagged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(id: &str, tagged: &str) {
        let subject = Subject::user(id).expect("a valid id");
        assert_eq!(Key::new(&subject, None).as_str(), tagged);
    }

    #[test]
    fn plain_ids_stand_as_they_are() {
        check("alice@example.org", "{alice@example.org}");
        check("A-z.0_9~", "{A-z.0_9~}");
    }

    #[test]
    fn everything_else_is_encoded_by_byte() {
        check("}", "{%7D}");
        check("a b%2F", "{a%20b%252F}");
        check("用", "{%E7%94%A8}");
    }

    #[test]
    fn no_user_id_reaches_a_reserved_key() {
        check("ip:203.0.113.5", "{ip%3A203.0.113.5}");
        check("anon:", "{anon%3A}");
        assert_eq!(Key::new(&Subject::Anonymous, None).as_str(), "{anon:}");
        assert_eq!(Key::new(&Subject::Address("203.0.113.5".into()), None).as_str(), "{ip:203.0.113.5}");
    }

    #[test]
    fn a_route_stands_behind_the_brace() {
        let subject = Subject::user("u").expect("a valid id");
        assert_eq!(Key::new(&subject, Some("search")).as_str(), "{u}:route:search");
    }
}
