//! The request that a proxy asks about, as its headers tell it. Pure.
//!
//! A path is compared with the patterns of routes as its origin would most likely read it, not as the client spelt it: whoever writes
//! `/%65xport/` or `//export/./` for `/export/` gets the same page for the same price.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Where proxies put the path and query that the client asked for: nginx, ingress-nginx (a whole URL), Caddy and Traefik.
pub(super) const PATH_HEADERS: [&str; 3] = ["x-original-uri", "x-original-url", "x-forwarded-uri"];
/// Where they put the client's method.
pub(super) const METHOD_HEADERS: [&str; 2] = ["x-original-method", "x-forwarded-method"];

/// What was asked for, as far as somebody who is believed says.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Original {
    /// The path, in one spelling.
    pub(super) path: Option<Box<str>>,
    /// The method, in capitals.
    pub(super) method: Option<Box<str>>,
}

/// The one value of these lines, the empty ones aside.
///
/// # Errors
/// When there are two different ones: a proxy writes one header and may pass on another that its client made up, and which is which
/// cannot be told here.
pub(super) fn agreed<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Result<Option<&'a [u8]>, Disagree> {
    let mut lines = lines.into_iter().map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let Some(first) = lines.next() else { return Ok(None) };
    if lines.all(|line| line == first) { Ok(Some(first)) } else { Err(Disagree) }
}

/// Two headers say different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Disagree;

/// The path of a request target (a path with or without a query, or a whole URL) in one spelling: what need not be escaped is not,
/// what must be is in capitals, and empty, `.` and `..` segments are gone. Always begins with `/`.
pub(super) fn canonical_path(target: &[u8]) -> String {
    let path = without_origin(target);
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
    let decoded: Cow<'_, [u8]> = percent_encoding::percent_decode(&path[..end]).into();
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut ends_open = false;
    for segment in decoded.split(|byte| *byte == b'/') {
        ends_open = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            b".." => {
                kept.pop();
            }
            named => kept.push(named),
        }
    }
    let mut text = String::with_capacity(decoded.len() + 1);
    for segment in &kept {
        text.push('/');
        segment.iter().for_each(|byte| push_escaped(&mut text, *byte));
    }
    if ends_open || kept.is_empty() {
        text.push('/');
    }
    text
}

/// `scheme://authority` goes.
fn without_origin(target: &[u8]) -> &[u8] {
    if target.starts_with(b"/") {
        return target;
    }
    let Some(at) = target.windows(3).position(|three| three == b"://") else { return target };
    let rest = &target[at + 3..];
    rest.iter().position(|byte| *byte == b'/').map_or(b"/", |at| &rest[at..])
}

fn push_escaped(text: &mut String, byte: u8) {
    if byte.is_ascii_graphic() && !matches!(byte, b'%' | b'?' | b'#') {
        text.push(char::from(byte));
    } else {
        // Writing to a String does not fail.
        let _ = write!(text, "%{byte:02X}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_spelling() {
        for (target, path) in [
            ("/export/7?page=2", "/export/7"),
            ("/%65xport/7", "/export/7"),
            ("//export/./a/../7", "/export/7"),
            ("/export%2F7", "/export/7"),
            ("/export/%2e%2e/export/7#top", "/export/7"),
            ("https://example.org/export/7", "/export/7"),
            ("https://example.org", "/"),
            ("/../../export/7", "/export/7"),
            ("/export/", "/export/"),
            ("/export/.", "/export/"),
            ("/a/b/..", "/a/"),
            ("/a%20b", "/a%20b"),
            ("/a b", "/a%20b"),
            ("/%e7%94%a8", "/%E7%94%A8"),
            ("/用", "/%E7%94%A8"),
            ("/what%3Fcost=0", "/what%3Fcost=0"),
            ("/100%", "/100%25"),
            ("/%2565xport", "/%2565xport"),
            ("/to?url=http://a/b", "/to"),
            ("", "/"),
            ("*", "/*"),
        ] {
            assert_eq!(canonical_path(target.as_bytes()), path, "{target}");
        }
    }

    #[test]
    fn a_spelling_is_its_own_spelling_and_no_bytes_panic() {
        for seed in 0..20_000_u32 {
            let alphabet = b"/.%2eEfF?:#a \xff";
            let mut left = seed.wrapping_mul(2_654_435_761);
            let target: Vec<u8> = (0..9)
                .map(|_| {
                    left = left.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    alphabet[(left >> 16) as usize % alphabet.len()]
                })
                .collect();
            let once = canonical_path(&target);
            assert!(once.starts_with('/') && once.is_ascii(), "{target:?}: {once}");
            assert_eq!(canonical_path(once.as_bytes()), once, "{target:?}");
        }
    }

    #[test]
    fn headers_that_disagree_are_not_chosen_from() {
        let agreed = |lines: &[&'static str]| agreed(lines.iter().map(|line| line.as_bytes()));
        assert_eq!(agreed(&[]), Ok(None));
        assert_eq!(agreed(&["", " "]), Ok(None));
        assert_eq!(agreed(&["", "/a", " /a "]), Ok(Some(&b"/a"[..])));
        assert_eq!(agreed(&["/a", "/b"]), Err(Disagree));
    }
}
