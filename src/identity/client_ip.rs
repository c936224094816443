//! The client's address: the connection's own, or what trusted proxies say.
//!
//! Each proxy appends the address that it sees to what it was given, so only the right end is its word; what stands further left was
//! written by whoever it saw, and so on for as long as those are trusted themselves. The walk goes from the right, through trusted
//! proxies, and stops at the first address that is none of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Settings;

/// The identity of all whose address cannot be read: one for all, never one for each spelling.
const UNKNOWN: &str = "unknown";
/// More proxies than these in a row do not exist; a longer list is not read further.
const MOST_HOPS: usize = 64;
/// `64:ff9b::/96`, whose last 32 bits are an IPv4 address (RFC 6052).
const NAT64: u128 = 0x0064_ff9b << 96;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// An address.
    Tcp(IpAddr),
    /// A Unix socket: this machine.
    Unix,
}

/// The canonical text of the client's address, and whether the proxies' headers said it.
#[must_use]
pub fn client_address(settings: &Settings, peer: Peer, forwarded: &[&[u8]], x_forwarded_for: &[&[u8]]) -> (Box<str>, bool) {
    let own = || match peer {
        Peer::Tcp(address) => canonical(address, settings.ipv6_prefix),
        Peer::Unix => UNKNOWN.into(),
    };
    if !settings.trusts_proxy(peer) {
        return (own(), false);
    }
    let by_forwarded = walk(settings, forwarded_elements(forwarded));
    let by_x_forwarded_for = walk(settings, comma_elements(x_forwarded_for));
    match (by_forwarded, by_x_forwarded_for) {
        (None, None) => (own(), false),
        (Some(client), None) | (None, Some(client)) => (client, true),
        (Some(one), Some(other)) if one == other => (one, true),
        // A proxy writes one of the two and passes the other on as it came: which, cannot be told, so neither is believed.
        (Some(_), Some(_)) => (UNKNOWN.into(), true),
    }
}

/// Right to left through trusted proxies. Nothing when there is no element.
fn walk<'a>(settings: &Settings, elements: impl DoubleEndedIterator<Item = &'a [u8]>) -> Option<Box<str>> {
    let mut left_most = None;
    for element in elements.rev().take(MOST_HOPS) {
        let Some(address) = parse_address(element) else { return Some(UNKNOWN.into()) };
        let text = canonical(address, settings.ipv6_prefix);
        if !settings.trusts_proxy(Peer::Tcp(address)) {
            return Some(text);
        }
        left_most = Some(text);
    }
    left_most
}

/// The elements of all lines together, without the empty ones.
fn comma_elements<'a>(lines: &'a [&'a [u8]]) -> impl DoubleEndedIterator<Item = &'a [u8]> {
    lines.iter().flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// The `for` values of all elements of all `Forwarded` lines together (RFC 7239). An element without one is an element that cannot
/// be read.
fn forwarded_elements<'a>(lines: &'a [&'a [u8]]) -> impl DoubleEndedIterator<Item = &'a [u8]> {
    let elements: Vec<&[u8]> = lines.iter().flat_map(|line| outside_quotes(line, b',')).filter(|element| !element.is_empty()).collect();
    elements.into_iter().map(|element| {
        outside_quotes(element, b';')
            .into_iter()
            .find_map(|pair| {
                let (name, value) = pair.split_at_checked(4)?;
                name.eq_ignore_ascii_case(b"for=").then_some(value)
            })
            .unwrap_or(b"_")
    })
}

/// The parts between `separator`s that stand outside of quotes, without space around them.
fn outside_quotes(line: &[u8], separator: u8) -> Vec<&[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    line.split(|byte| {
        if escaped {
            escaped = false;
            return false;
        }
        match byte {
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            byte => return *byte == separator && !quoted,
        }
        false
    })
    .map(<[u8]>::trim_ascii)
    .collect()
}

/// An address as proxies write it: perhaps in quotes or brackets, with a port or a zone.
#[must_use]
pub fn parse_address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    if let Some(bracketed) = text.strip_prefix('[') {
        let (inside, behind) = bracketed.split_once(']')?;
        return (behind.is_empty() || is_port(behind.strip_prefix(':')?)).then(|| without_zone(inside).parse().ok().map(IpAddr::V6))?;
    }
    if let Some((address, port)) = text.split_once(':')
        && !port.contains(':')
    {
        return is_port(port).then(|| address.parse().ok().map(IpAddr::V4))?;
    }
    without_zone(text).parse().ok()
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A zone names an interface of the machine that wrote it; it says nothing here.
fn without_zone(text: &str) -> &str {
    text.split_once('%').map_or(text, |(address, _)| address)
}

/// One spelling for each client: IPv4 inside IPv6 is IPv4, IPv6 is cut to `prefix` bits.
#[must_use]
pub fn canonical(address: IpAddr, prefix: u8) -> Box<str> {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string().into(),
        IpAddr::V6(address) => {
            let bits = u128::from(address);
            if bits >> 32 == NAT64 >> 32 {
                #[expect(clippy::cast_possible_truncation, reason = "the last 32 bits are what is wanted")]
                let inside = Ipv4Addr::from(bits as u32);
                return inside.to_string().into();
            }
            if prefix >= 128 {
                return address.to_string().into();
            }
            let mask = u128::MAX << (128 - u32::from(prefix.max(1)));
            format!("{}/{prefix}", Ipv6Addr::from(bits & mask)).into()
        }
    }
}
