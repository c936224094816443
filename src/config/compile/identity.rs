//! The section `identity`.

use ipnet::IpNet;

use super::super::Identity;
use super::super::raw::{Entry, Fields, Node};
use super::Compiler;

/// More networks than anybody's proxies have.
const MOST_NETWORKS: usize = 256;
/// More headers than anybody asks for.
const MOST_HEADERS: usize = 16;
/// The longest name of a header, bytes.
const MOST_HEADER_BYTES: usize = 64;

impl Compiler {
    pub(super) fn identity(&mut self, node: &Node) -> Identity {
        let mut identity = Identity::default();
        let Some(mut fields) = self.reader.map(node, "identity") else {
            return identity;
        };
        if let Some(networks) = self.networks(&mut fields, "trusted_peers", "may say who the user is") {
            identity.trusted_peers = networks;
        }
        if let Some(networks) = self.networks(&mut fields, "trusted_proxies", "may say what the client's address is") {
            identity.trusted_proxies = networks;
        }
        if let Some(name) = fields.take("api_key_header").and_then(|entry| self.header(&entry.node, &fields.path("api_key_header"))) {
            identity.api_key_header = name;
        }
        let user_id = fields.take("user_id_header");
        if let Some(name) = user_id.and_then(|entry| self.header(&entry.node, &fields.path("user_id_header"))) {
            identity.user_id_header = name;
        }
        if identity.api_key_header == identity.user_id_header {
            let place = user_id.map_or(fields.place(), |entry| entry.node.place);
            let message = format!("{} is the header of API keys too", identity.user_id_header);
            let hint = "an API key is hashed and a user id is not: they need a header each";
            self.reader.note(place, &fields.path("user_id_header"), message, Some(hint.to_owned()));
        }
        if let Some(entry) = fields.take("auth_headers") {
            identity.auth_headers = self.headers(entry, &fields.path("auth_headers"));
        }
        if let Some(entry) = fields.take("ipv6_prefix") {
            let bits = self.reader.whole(&entry.node, &fields.path("ipv6_prefix"), 32, 128);
            identity.ipv6_prefix = bits.and_then(|bits| u8::try_from(bits).ok()).unwrap_or(identity.ipv6_prefix);
        }
        self.reader.finish(&fields);
        identity
    }

    fn networks(&mut self, fields: &mut Fields<'_>, key: &'static str, may: &str) -> Option<Vec<IpNet>> {
        let entry = fields.take(key)?;
        let path = fields.path(key);
        let nodes = self.reader.list(&entry.node, &path, MOST_NETWORKS)?;
        let mut networks = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let Some(text) = self.reader.text(node, &path, "a network like 10.1.0.0/16") else { continue };
            match network(text) {
                Ok(network) => {
                    if network.prefix_len() == 0 {
                        self.warnings.push(node.place.mistake(&path, format!("{network}: everybody {may}")));
                    }
                    networks.push(network);
                }
                Err(hint) => {
                    let shown: String = text.chars().take(60).collect();
                    self.reader.note(node.place, &path, format!("{shown:?} is not a network like 10.1.0.0/16 or 2001:db8::/32"), hint);
                }
            }
        }
        Some(networks)
    }

    fn headers(&mut self, entry: &Entry, path: &str) -> Vec<Box<str>> {
        let Some(nodes) = self.reader.list(&entry.node, path, MOST_HEADERS) else {
            return Vec::new();
        };
        let mut names = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let Some(name) = self.header(node, &path) else { continue };
            if names.contains(&name) {
                self.reader.note(node.place, &path, format!("{name} stands twice"), Some("keep one of them".to_owned()));
            } else {
                names.push(name);
            }
        }
        names
    }

    /// The name of a header, in lower case.
    fn header(&mut self, node: &Node, path: &str) -> Option<Box<str>> {
        let text = self.reader.text(node, path, "the name of a header")?;
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if (1..=MOST_HEADER_BYTES).contains(&text.len()) && text.bytes().all(token) {
            return Some(text.to_ascii_lowercase().into());
        }
        let shown: String = text.chars().take(60).collect();
        let hint = "a name has 1 to 64 letters, digits and dashes, like X-User-ID";
        self.reader.note(node.place, path, format!("{shown:?} is not the name of a header"), Some(hint.to_owned()));
        None
    }
}

/// A network in the one way to write it: whole, with its prefix, no bits behind it. The error is what to write instead.
fn network(text: &str) -> Result<IpNet, Option<String>> {
    let network: IpNet = match text.parse() {
        Ok(network) => network,
        Err(_) => return Err(text.parse::<std::net::IpAddr>().ok().map(|address| format!("one address is {}", IpNet::from(address)))),
    };
    if network.trunc() != network {
        return Err(Some(format!("did you mean {}?", network.trunc())));
    }
    if let IpNet::V6(v6) = network
        && v6.addr().to_ipv4_mapped().is_some()
    {
        return Err(Some("write it as IPv4: addresses are compared so".to_owned()));
    }
    Ok(network)
}
