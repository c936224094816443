//! Who is asking. Pure: what a door saw goes in, a [`Subject`] comes out.

mod subject;

use std::net::IpAddr;

pub use subject::{InvalidUserId, Subject};

/// What a door saw.
#[derive(Debug, Clone, Copy)]
pub struct Claims<'a> {
    /// The other end of the connection; nothing for a Unix socket.
    pub peer: Option<IpAddr>,
    /// The user that the request names.
    pub user: Option<&'a str>,
    /// The client's address that the request names.
    pub address: Option<&'a str>,
}

/// Who asks: the user that a trusted peer names, else the address that it names, else the peer itself.
///
/// Trusted are this machine's own addresses and Unix sockets: what asks from elsewhere could name anybody.
///
/// # Errors
/// When the peer may not say who asks, or what it says is no id and no address.
pub fn resolve(claims: &Claims<'_>) -> Result<Subject, IdentityError> {
    let trusted = claims.peer.is_none_or(|peer| peer.to_canonical().is_loopback());
    if (claims.user.is_some() || claims.address.is_some()) && !trusted {
        return Err(IdentityError::UntrustedPeer);
    }
    if let Some(id) = claims.user {
        return Ok(Subject::user(id)?);
    }
    let named = claims.address.map(|address| address.parse().map_err(|_| IdentityError::InvalidAddress)).transpose()?;
    Ok(Subject::Address(named.or(claims.peer).map_or_else(|| "unknown".into(), canonical)))
}

/// One spelling for each client: IPv4 inside IPv6 is IPv4, IPv6 is cut to the /64 that one client holds.
fn canonical(address: IpAddr) -> Box<str> {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string().into(),
        IpAddr::V6(address) => {
            let prefix = u128::from(address) & !u128::from(u64::MAX);
            format!("{}/64", std::net::Ipv6Addr::from(prefix)).into()
        }
    }
}

/// Why it cannot be said who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The peer is not trusted to name a user or an address.
    #[error("this peer may not say who asks")]
    UntrustedPeer,
    /// The user id is none.
    #[error(transparent)]
    InvalidUserId(#[from] InvalidUserId),
    /// The address is none.
    #[error("address: not an IPv4 or IPv6 address")]
    InvalidAddress,
}
