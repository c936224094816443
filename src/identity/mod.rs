//! Who is asking. Pure: what a door saw ([`Claims`]) goes in, a [`Subject`] comes out, or why there is none.
//!
//! Two lists say who is believed: *trusted peers* may name the user, *trusted proxies* may say what the client's address is. What
//! anybody else says is ignored, and told to the caller so that it can be counted; at `/v1/check`, where a wrong subject would go
//! unnoticed, it is refused.

mod api_key;
mod client_ip;
mod forwarded;
mod settings;
mod subject;

use std::fmt;

pub use api_key::{InvalidApiKey, KeyHasher, hex};
use client_ip::says_something;
pub use client_ip::{Peer, canonical, client_address, parse_address};
pub use settings::Settings;
pub use subject::{InvalidUserId, Subject, percent_encode};

/// Where a request came in: what a claim from an untrusted peer means differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// `/v1/check`: the caller says who asks. A claim that is not believed is an error.
    Check,
    /// In front of somebody else's service: clients' headers come along. A claim that is not believed is ignored.
    Proxy,
}

/// What a door saw. Header lines are bytes: they may hold anything.
#[derive(Debug, Clone, Copy)]
pub struct Claims<'a> {
    /// The other end of the connection.
    pub peer: Peer,
    /// Where it came in.
    pub door: Door,
    /// The user that the body names.
    pub user: Option<&'a str>,
    /// The client's address that the body names.
    pub address: Option<&'a str>,
    /// All lines of the API key header.
    pub api_keys: &'a [&'a [u8]],
    /// All lines of the user id header.
    pub user_ids: &'a [&'a [u8]],
    /// All lines of `Forwarded`.
    pub forwarded: &'a [&'a [u8]],
    /// All lines of `X-Forwarded-For`.
    pub x_forwarded_for: &'a [&'a [u8]],
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identified {
    /// Whose limits apply: a user, or the address of an anonymous client.
    pub subject: Subject,
    /// Why it is that one.
    pub because: Because,
    /// Claims that were not believed.
    pub ignored: Ignored,
}

impl Identified {
    /// Whether nobody said who asks.
    #[must_use]
    pub const fn is_anonymous(&self) -> bool {
        matches!(self.subject, Subject::Address(_))
    }
}

/// What decided who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// The body names the user.
    BodyUser,
    /// The API key header.
    ApiKey,
    /// The user id header.
    UserIdHeader,
    /// The body names the address.
    BodyAddress,
    /// The headers of trusted proxies name the address.
    Forwarded,
    /// The headers of trusted proxies name an address that cannot be read, or two: the shared fallback identity.
    Unreadable,
    /// The peer's own address.
    PeerAddress,
    /// The peer is a Unix socket, and nobody says more: the shared fallback identity.
    NoAddress,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BodyUser => "the body names the user, and the peer is trusted",
            Self::ApiKey => "the API key header names the user, and the peer is trusted",
            Self::UserIdHeader => "the user id header names the user, and the peer is trusted",
            Self::BodyAddress => "the body names the address, and the peer is trusted",
            Self::Forwarded => "nobody names a user; the headers of trusted proxies name the address",
            Self::Unreadable => "nobody names a user; what the headers of trusted proxies say cannot be read, or is two addresses",
            Self::PeerAddress => "nobody who is trusted says more than the connection's own address",
            Self::NoAddress => "nobody says more than the connection, which is a Unix socket",
        })
    }
}

/// Claims that were made by somebody who may not make them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ignored {
    /// Somebody named a user.
    pub user: bool,
    /// Somebody named a client address.
    pub address: bool,
}

/// Finds out who asks.
///
/// # Errors
/// When a claim that is believed is none (an id with a control character, two keys), or one is made at `/v1/check` by a peer that is not
/// trusted.
pub fn resolve(settings: &Settings, hasher: &KeyHasher, claims: &Claims<'_>) -> Result<Identified, IdentityError> {
    let may_name_user = settings.trusts_peer(claims.peer);
    let may_name_address = may_name_user || settings.trusts_proxy(claims.peer);
    let names_user = claims.user.is_some() || !claims.api_keys.is_empty() || !claims.user_ids.is_empty();
    if claims.door == Door::Check && ((names_user && !may_name_user) || (claims.address.is_some() && !may_name_address)) {
        return Err(IdentityError::UntrustedPeer);
    }
    let ignored = Ignored { user: names_user && !may_name_user, address: ignores_address(settings, claims, may_name_address) };
    let (subject, because) = if names_user && may_name_user { user(hasher, claims)? } else { address(settings, claims, may_name_address)? };
    Ok(Identified { subject, because, ignored })
}

/// Whether an address is named by somebody whose word on it is not taken.
fn ignores_address(settings: &Settings, claims: &Claims<'_>, may_name_address: bool) -> bool {
    let in_headers = || says_something(claims.forwarded) || says_something(claims.x_forwarded_for);
    (claims.address.is_some() && !may_name_address) || (!settings.trusts_proxy(claims.peer) && in_headers())
}

fn user(hasher: &KeyHasher, claims: &Claims<'_>) -> Result<(Subject, Because), IdentityError> {
    if let Some(id) = claims.user {
        // The key decides nothing here, but a key that could be two is nobody's request as it was meant.
        KeyHasher::check(claims.api_keys)?;
        return Ok((Subject::user(id)?, Because::BodyUser));
    }
    if !claims.api_keys.is_empty() {
        return Ok((hasher.subject(claims.api_keys)?, Because::ApiKey));
    }
    let [line] = claims.user_ids else { return Err(IdentityError::TwoUserIds) };
    let id = std::str::from_utf8(line).map_err(|_| InvalidUserId::NotUtf8)?;
    Ok((Subject::user(id)?, Because::UserIdHeader))
}

fn address(settings: &Settings, claims: &Claims<'_>, may_name_address: bool) -> Result<(Subject, Because), IdentityError> {
    if let (Some(text), true) = (claims.address, may_name_address) {
        let address = parse_address(text.as_bytes()).ok_or(IdentityError::InvalidAddress)?;
        return Ok((Subject::Address(canonical(address, settings.ipv6_prefix)), Because::BodyAddress));
    }
    let (address, because) = client_address(settings, claims.peer, claims.forwarded, claims.x_forwarded_for);
    Ok((Subject::Address(address), because))
}

/// Why it cannot be said who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The peer is not trusted to name a user or an address.
    #[error("this peer may not say who asks; if it is yours, put its address into identity.trusted_peers")]
    UntrustedPeer,
    /// The user id is none.
    #[error(transparent)]
    InvalidUserId(#[from] InvalidUserId),
    /// There are two lines with a user id.
    #[error("the user id header stands more than once; send one")]
    TwoUserIds,
    /// The API key is none.
    #[error(transparent)]
    InvalidApiKey(#[from] InvalidApiKey),
    /// The address is none.
    #[error("the address in the body is not an IPv4 or IPv6 address")]
    InvalidAddress,
}
