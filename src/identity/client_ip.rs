//! The client's address: the connection's own, or what trusted proxies say.
//!
//! Each proxy appends the address that it sees to what it was given, so only the right end is its word; what stands further left was
//! written by whoever it saw, and so on for as long as those are trusted themselves. The walk goes from the right, through trusted
//! proxies, and stops at the first address that is none of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Because, Settings, forwarded};

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
    /// A Unix socket: this machine. It is believed as loopback is by default, whatever the lists say, because the permissions of its
    /// file say who may open it; it has no address of its own.
    Unix,
}

/// The canonical text of the client's address, and what said it.
///
/// Where only one family of headers has elements it decides. Where both have some they must agree: a proxy writes one of the two and
/// passes the other on as it came from the client, and which of them cannot be told here, so two different answers are
/// [`Because::Unreadable`]: at most the shared fallback is gained by sending the other family along.
///
/// Work is linear in the bytes of the lines that the walk meets, and at most 64 addresses are parsed for each family.
#[must_use]
pub fn client_address(settings: &Settings, peer: Peer, forwarded: &[&[u8]], x_forwarded_for: &[&[u8]]) -> (Box<str>, Because) {
    if settings.trusts_proxy(peer) {
        let text = |address| canonical(address, settings.ipv6_prefix);
        let by_forwarded = walk(settings, forwarded_addresses(forwarded));
        let by_x_forwarded_for = walk(settings, comma_elements(x_forwarded_for).map(parse_address));
        match (by_forwarded, by_x_forwarded_for) {
            (Walk::Nothing, Walk::Nothing) => {}
            (Walk::Client(client), Walk::Nothing) | (Walk::Nothing, Walk::Client(client)) => return (text(client), Because::Forwarded),
            (Walk::Client(one), Walk::Client(other)) if text(one) == text(other) => return (text(one), Because::Forwarded),
            _ => return (UNKNOWN.into(), Because::Unreadable),
        }
    }
    match peer {
        Peer::Tcp(address) => (canonical(address, settings.ipv6_prefix), Because::PeerAddress),
        Peer::Unix => (UNKNOWN.into(), Because::NoAddress),
    }
}

/// Whether any line has an element: lines that are empty or have commas alone are as good as none.
pub(super) fn says_something(lines: &[&[u8]]) -> bool {
    lines.iter().any(|line| line.iter().any(|byte| *byte != b',' && !byte.is_ascii_whitespace()))
}

/// What a walk comes to.
#[derive(Debug, Clone, Copy)]
enum Walk {
    /// There is no element.
    Nothing,
    /// It met an element that cannot be read. What stands further left may be anybody's word.
    Unreadable,
    /// The first address that is not trusted itself, or the left-most when all are.
    Client(IpAddr),
}

/// Through addresses from the right-most on, as long as they are trusted proxies; nothing stands for one that cannot be read.
fn walk(settings: &Settings, addresses: impl Iterator<Item = Option<IpAddr>>) -> Walk {
    let mut met = Walk::Nothing;
    for address in addresses.take(MOST_HOPS) {
        let Some(address) = address else { return Walk::Unreadable };
        met = Walk::Client(address);
        if !settings.trusts_proxy(Peer::Tcp(address)) {
            break;
        }
    }
    met
}

/// The elements of all lines together, from the right-most on, without the empty ones.
fn comma_elements<'a>(lines: &'a [&'a [u8]]) -> impl Iterator<Item = &'a [u8]> {
    lines.iter().rev().flat_map(|line| line.rsplit(|byte| *byte == b',')).map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// The addresses of all `Forwarded` lines together, from the right-most on.
fn forwarded_addresses<'a>(lines: &'a [&'a [u8]]) -> impl Iterator<Item = Option<IpAddr>> {
    lines.iter().rev().flat_map(|line| forwarded::for_values(line).into_iter().rev()).map(|value| parse_address(&value?))
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

/// One spelling for each client: IPv4 inside IPv6 (mapped, NAT64) is IPv4; IPv6 is cut to `prefix` bits, 32 … 128, and written as a
/// network (`2001:db8::/64`), or as an address when nothing is cut off.
///
/// Whether an address is *trusted* is asked of the one on the wire: what a translator put inside it is a client's name, not a proxy's.
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
