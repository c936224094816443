//! Access logs in nginx's combined format:
//! `address - user [day/Mon/year:h:m:s ±zone] "request" status bytes "referer" "user agent"`.
//!
//! Only the address, the user and the time are used; the rest is checked in its shape, so that a log of another format is
//! noticed instead of misread. What follows after the user agent (many add fields) is left alone.

use std::net::{IpAddr, Ipv6Addr};

use jiff::fmt::strtime;

use crate::identity::Subject;

/// A subject has at most this much of an IPv6 address: a household or a server owns a whole /64.
const IPV6_PREFIX: u32 = 64;

/// Who a line of an access log is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SubjectFrom {
    /// The remote user; the address where there is none (`-`).
    #[default]
    User,
    /// Always the address.
    Address,
}

/// Reads lines; remembers the last date, as thousands of lines in a row share it.
#[derive(Default)]
pub(super) struct Reader {
    subject_from: SubjectFrom,
    last_date: String,
    last_second: i64,
}

impl Reader {
    pub(super) fn new(subject_from: SubjectFrom) -> Self {
        Self { subject_from, ..Self::default() }
    }

    /// The second, since the Unix epoch, in which the request was completed, and who made it.
    ///
    /// # Errors
    /// What is not as in a combined log.
    pub(super) fn read(&mut self, line: &str) -> Result<(i64, Subject), String> {
        let (address, rest) = line.split_once(' ').ok_or("it is not in the combined format")?;
        let address = ip(address)?;
        let (_ident, rest) = rest.split_once(' ').ok_or("there is no user after the address")?;
        // nginx writes spaces and brackets in a user's name as they are: the date is the first bracket that holds one.
        let (user, date, rest) = rest
            .match_indices(" [")
            .find_map(|(index, _)| {
                let (date, after) = rest[index + 2..].split_once(']')?;
                (date.len() == 26 && date.is_ascii() && date.as_bytes()[2] == b'/').then_some((&rest[..index], date, after))
            })
            .ok_or("there is no [day/Mon/year:hour:minute:second zone] in it")?;
        let second = self.second(date)?;
        shape(rest)?;
        let subject = match self.subject_from {
            SubjectFrom::User if user != "-" => Subject::user(&unescaped(user)?).map_err(|error| format!("remote user: {error}"))?,
            _ => Subject::Address(address),
        };
        Ok((second, subject))
    }

    fn second(&mut self, date: &str) -> Result<i64, String> {
        if date != self.last_date {
            let broken = |error: jiff::Error| format!("the date {date:?} cannot be read: {error}");
            let time = strtime::parse("%d/%b/%Y:%H:%M:%S %z", date).and_then(|time| time.to_timestamp()).map_err(broken)?;
            if time.as_second() < 0 {
                return Err(format!("the date {date:?} lies before 1970"));
            }
            self.last_second = time.as_second();
            date.clone_into(&mut self.last_date);
        }
        Ok(self.last_second)
    }
}

/// An address in its canonical form: IPv4-mapped is IPv4, IPv6 is cut to its /64.
fn ip(text: &str) -> Result<Box<str>, String> {
    let address: IpAddr = text.parse().map_err(|_| format!("{:?} is not an address", text.chars().take(50).collect::<String>()))?;
    Ok(match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_string().into(),
        IpAddr::V6(v6) => {
            let network = Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - IPV6_PREFIX)));
            format!("{network}/{IPV6_PREFIX}").into()
        }
    })
}

/// Checks ` "request" status bytes "referer" "user agent"`.
fn shape(rest: &str) -> Result<(), String> {
    let rest = quoted(rest).ok_or("there is no quoted request after the date")?;
    let mut words = rest.strip_prefix(' ').unwrap_or_default().splitn(3, ' ');
    let (status, bytes, rest) = (words.next().unwrap_or_default(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if status.len() != 3 || !status.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("there is no status after the request".to_owned());
    }
    if bytes != "-" && (bytes.is_empty() || !bytes.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err("there is no number of bytes after the status".to_owned());
    }
    // `splitn` took the space that `quoted` wants.
    let rest = quoted_here(rest).ok_or("there is no quoted referer after the bytes")?;
    let rest = quoted(rest).ok_or("there is no quoted user agent after the referer")?;
    if rest.is_empty() || rest.starts_with(' ') { Ok(()) } else { Err("something is stuck to the user agent".to_owned()) }
}

/// What follows a space and a quoted field.
fn quoted(text: &str) -> Option<&str> {
    quoted_here(text.strip_prefix(' ')?)
}

/// What follows a quoted field, in which a backslash takes the next character with it.
fn quoted_here(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('"')?;
    let mut escaped = false;
    for (index, byte) in inner.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(&inner[index + 1..]),
            _ => {}
        }
    }
    None
}

/// A user's name without nginx's escapes (`\x22`, `\"`, `\\`).
fn unescaped(text: &str) -> Result<String, String> {
    if !text.contains('\\') {
        return Ok(text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16)).and_then(|digit| u8::try_from(digit).ok());
        match bytes.next() {
            Some(b'x') => match (digit(bytes.next()), digit(bytes.next())) {
                (Some(high), Some(low)) => out.push(high * 16 + low),
                _ => return Err("remote user: \\x without two hex digits".to_owned()),
            },
            Some(plain) => out.push(plain),
            None => return Err("remote user: it ends in a backslash".to_owned()),
        }
    }
    String::from_utf8(out).map_err(|_| "remote user: its escapes are not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = r#"[01/Jan/2026:01:00:00 +0100] "GET / HTTP/1.1" 200 5 "-" "curl/8""#;

    #[track_caller]
    fn good(line: &str, subject: &str) {
        let (second, who) = Reader::default().read(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!((second, who.to_string().as_str()), (1_767_225_600, subject));
    }

    #[track_caller]
    fn bad(line: &str, problem: &str) {
        let error = Reader::default().read(line).expect_err("a bad line");
        assert!(error.contains(problem), "{error:?} does not say {problem:?}");
    }

    #[test]
    fn the_subject_is_the_user_and_else_the_address() {
        good(&format!("192.0.2.1 - - {REST}"), "ip:192.0.2.1");
        good(&format!("192.0.2.1 - alice {REST}"), "alice");
        good(&format!(r"192.0.2.1 - a\x22b\x5C {REST}"), "a\"b\\");
        good(&format!("192.0.2.1 - a [b] c {REST}"), "a [b] c");
        good(&format!("2001:db8::1:2 - - {REST}"), "ip:2001:db8::/64");
        good(&format!("::ffff:192.0.2.1 - - {REST}"), "ip:192.0.2.1");
        let (_, who) = Reader::new(SubjectFrom::Address).read(&format!("192.0.2.1 - alice {REST}")).expect("good");
        assert_eq!(who.to_string(), "ip:192.0.2.1");
    }

    #[test]
    fn odd_requests_and_added_fields_are_taken() {
        good(r#"192.0.2.1 - - [01/Jan/2026:00:00:00 +0000] "" 400 0 "-" "-""#, "ip:192.0.2.1");
        good(r#"192.0.2.1 - - [01/Jan/2026:00:00:00 +0000] "\x16\x03 \" ] [" 400 - "a\\" "b" "added" 0.003"#, "ip:192.0.2.1");
        good(r#"192.0.2.1 - - [31/Dec/2025:19:00:00 -0500] "-" 408 0 "-" "-""#, "ip:192.0.2.1");
    }

    #[test]
    fn what_is_no_combined_line_is_named() {
        bad("", "combined format");
        bad("localhost - - x", "is not an address");
        bad("192.0.2.1 - - no date", "there is no [day/Mon/year");
        bad(r#"192.0.2.1 - - [32/Jan/2026:00:00:00 +0000] "" 200 0 "-" "-""#, "cannot be read");
        bad(r#"192.0.2.1 - - [01/Jan/2026:00:00:00 +0000] "GET / 200 0"#, "no quoted request");
        bad(r#"192.0.2.1 - - [01/Jan/2026:00:00:00 +0000] "" OK 0 "-" "-""#, "no status");
        bad(r#"192.0.2.1 - - [01/Jan/2026:00:00:00 +0000] "" 200 x "-" "-""#, "no number of bytes");
        bad(r#"192.0.2.1 - - [01/Jan/2026:00:00:00 +0000] "" 200 0"#, "no quoted referer");
        bad(r#"192.0.2.1 - - [01/Jan/2026:00:00:00 +0000] "" 200 0 "-""#, "no quoted user agent");
    }
}
