//! Who is believed, and where claims stand.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::Peer;

/// Who may say who is asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Who may name the user.
    pub trusted_peers: Vec<IpNet>,
    /// Whose word on the client's address is taken.
    pub trusted_proxies: Vec<IpNet>,
    /// The header with an API key, in lower case.
    pub api_key_header: Box<str>,
    /// The header with a user id, in lower case.
    pub user_id_header: Box<str>,
    /// At the forward-auth door, the headers that say who the user is, in lower case: the API key if it is that header, a user id
    /// otherwise. None means that the address decides.
    pub auth_headers: Vec<Box<str>>,
    /// How many bits of an IPv6 address tell clients apart: 32 … 128.
    pub ipv6_prefix: u8,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            trusted_peers: loopback(),
            trusted_proxies: loopback(),
            api_key_header: "x-api-key".into(),
            user_id_header: "x-user-id".into(),
            auth_headers: Vec::new(),
            ipv6_prefix: 64,
        }
    }
}

impl Settings {
    /// Whether `peer` may name the user. A Unix socket is this machine, and its file's permissions say who may open it.
    #[must_use]
    pub fn trusts_peer(&self, peer: Peer) -> bool {
        contains(&self.trusted_peers, peer)
    }

    /// Whether the word of `peer` on the client's address is taken.
    #[must_use]
    pub fn trusts_proxy(&self, peer: Peer) -> bool {
        contains(&self.trusted_proxies, peer)
    }
}

fn contains(networks: &[IpNet], peer: Peer) -> bool {
    match peer {
        Peer::Unix => true,
        Peer::Tcp(address) => networks.iter().any(|network| network.contains(&address.to_canonical())),
    }
}

/// This machine's own addresses.
fn loopback() -> Vec<IpNet> {
    let v4 = Ipv4Net::new(Ipv4Addr::new(127, 0, 0, 0), 8).map(IpNet::V4);
    let v6 = Ipv6Net::new(Ipv6Addr::LOCALHOST, 128).map(IpNet::V6);
    [v4, v6].into_iter().flatten().collect()
}
