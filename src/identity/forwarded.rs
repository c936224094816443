//! `Forwarded` (RFC 7239), read so that no client can hide what a proxy appends.
//!
//! A proxy appends its element to the line that it was given. A client that leaves a quote open there would turn the proxy's element
//! into the inside of its own quoted string, and choose the address by its own `for`. So a quote stands around a whole value or nowhere
//! (one left open lies in the last element, which is then none), and an element has one `for`.

use std::borrow::Cow;

/// The `for` values of the elements of one line, from left to right, without quotes and escapes; nothing for an element that has none,
/// or that is none itself. Empty elements are left out.
pub(super) fn for_values(line: &[u8]) -> Vec<Option<Cow<'_, [u8]>>> {
    outside_quotes(line, b',').filter(|element| !element.is_empty()).map(for_value).collect()
}

fn for_value(element: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut found = None;
    for pair in outside_quotes(element, b';') {
        if pair.is_empty() {
            continue;
        }
        let (name, value) = pair.split_at(pair.iter().position(|byte| *byte == b'=')?);
        let value = unquoted(&value[1..])?;
        if name.contains(&b'"') || (name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some()) {
            return None;
        }
    }
    found
}

/// A value without the quotes around it and the escapes inside. Nothing when quotes stand anywhere else.
fn unquoted(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(inside) = value.strip_prefix(b"\"") else { return (!value.contains(&b'"')).then_some(Cow::Borrowed(value)) };
    let mut text = Vec::with_capacity(inside.len());
    let mut bytes = inside.iter();
    loop {
        match bytes.next()? {
            b'"' => return bytes.next().is_none().then_some(Cow::Owned(text)),
            b'\\' => text.push(*bytes.next()?),
            byte => text.push(*byte),
        }
    }
}

/// The parts between `separator`s that stand outside of quotes, without space around them.
fn outside_quotes(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    let parts = text.split(move |byte| {
        let plain = !std::mem::take(&mut escaped);
        match byte {
            b'\\' if quoted => escaped = plain,
            b'"' if plain => quoted = !quoted,
            _ => {}
        }
        *byte == separator && !quoted
    });
    parts.map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line, and its `for` values; `-` is an element that cannot be read.
    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        let shown = |value: Option<Cow<'_, [u8]>>| value.map_or("-".to_owned(), |bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert_eq!(for_values(line.as_bytes()).into_iter().map(shown).collect::<Vec<_>>(), expected, "{line}");
    }

    #[test]
    fn an_element_has_one_for_wherever_it_stands() {
        check("for=a, FOR=b", &["a", "b"]);
        check("proto=https ; For=a;by=c;", &["a"]);
        check("for=a;for=b", &["-"]);
        check("by=c, proto", &["-", "-"]);
        check("for = a", &["-"]);
    }

    #[test]
    fn empty_elements_are_none() {
        check("", &[]);
        check(" ,\t,", &[]);
        check("for=a,,", &["a"]);
        check(";", &["-"]);
    }

    #[test]
    fn separators_inside_quotes_separate_nothing() {
        check(r#"for=a;host="b,c;for=d", for="e""#, &["a", "e"]);
        check(r#"for="a\"b\\", for=c"#, &[r#"a"b\"#, "c"]);
    }

    #[test]
    fn a_quote_left_open_or_out_of_place_makes_nothing_readable_that_it_reaches() {
        check(r#"for=a;x=", for=b"#, &["-"]);
        check(r#"for=a;x="\, for="b""#, &["-"]);
        check(r#"for=a;x=", for="b";y="c""#, &["-"]);
        check(r#"for=a"b", for=c"#, &["-", "c"]);
        check(r#"f"o"r=a;for=d, for="b"c"#, &["-", "-"]);
    }
}
