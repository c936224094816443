//! Where Redis is: one server, one that Sentinels name, or a cluster; as a URL says it.

use std::path::PathBuf;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

/// Where one server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Address {
    /// `host:port` as servers name each other; a missing host means the one that said so.
    pub(super) fn named(text: &str, by: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.split('@').next()?.parse().ok()?;
        Some(Self::of(host, port, by))
    }

    /// As [`Self::named`], in two parts.
    pub(super) fn of(host: &str, port: u16, by: &Self) -> Self {
        match by {
            Self::Tcp { host: own, .. } if host.is_empty() || host == "?" => Self::Tcp { host: own.clone(), port },
            _ => Self::Tcp { host: host.trim_matches(['[', ']']).to_owned(), port },
        }
    }
}

/// How servers are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is there.
    One(Address),
    /// These know where the one called `master` is.
    Sentinel { sentinels: Vec<Address>, master: String },
    /// These know who has which slots.
    Cluster { seeds: Vec<Address> },
}

/// What a URL says.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) kind: Kind,
    pub(super) tls: bool,
    pub(super) db: i64,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

/// The forms, for a message.
const FORMS: &str = "give redis:// or rediss://[user[:password]@]host[:port][/db], redis+unix:///path[?db=n], \
redis+sentinel:// or rediss+sentinel://host[:port],…/master[/db], redis+cluster:// or rediss+cluster://host[:port],…";
/// Where Sentinels listen unless it is said.
const SENTINEL_PORT: u16 = 26_379;

/// Why a URL leads nowhere. It never holds the URL, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the url of redis is none: {0}")]
pub struct UrlError(String);

/// Reads a URL.
///
/// # Errors
/// When it is none.
pub(super) fn parse(url: &str) -> Result<Place, UrlError> {
    read(url).map_err(UrlError)
}

fn read(url: &str) -> Result<Place, String> {
    let (scheme, rest) = url.split_once("://").ok_or_else(|| format!("it has no scheme: {FORMS}"))?;
    let Some((scheme, way)) = scheme.split_once('+').filter(|(_, way)| matches!(*way, "sentinel" | "cluster")) else {
        let (info, address, tls) = one(url)?;
        return Ok(place(Kind::One(address), tls, &info));
    };
    if !matches!(scheme, "redis" | "rediss" | "valkey" | "valkeys") {
        return Err(FORMS.to_owned());
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = authority.rsplit_once('@').map_or(("", authority), |(login, hosts)| (login, hosts));
    let login = if login.is_empty() { String::new() } else { format!("{login}@") };
    let (master, db) = if way == "sentinel" { path.split_once('/').unwrap_or((path, "")) } else { ("", path) };
    let mut servers = Vec::new();
    for host in hosts.split(',') {
        // The library's own reading of a server, with all that a URL may hold.
        servers.push(one(&format!("{scheme}://{login}{}/{db}", with_port(host, way)))?);
    }
    let Some((info, _, tls)) = servers.first().cloned() else { return Err(FORMS.to_owned()) };
    let addresses = servers.into_iter().map(|(_, address, _)| address).collect();
    match way {
        "sentinel" if master.is_empty() => Err("it does not name the master that the sentinels watch: …/master".to_owned()),
        "sentinel" => Ok(place(Kind::Sentinel { sentinels: addresses, master: master.to_owned() }, tls, &info)),
        _ if info.redis_settings().db() != 0 => Err("a cluster has no database but 0".to_owned()),
        _ => Ok(place(Kind::Cluster { seeds: addresses }, tls, &info)),
    }
}

fn with_port(host: &str, way: &str) -> String {
    let has_port =
        host.rsplit_once(':').is_some_and(|(before, port)| !port.contains(']') && (before.ends_with(']') || !before.contains(':')));
    if way == "sentinel" && !has_port { format!("{host}:{SENTINEL_PORT}") } else { host.to_owned() }
}

fn one(url: &str) -> Result<(ConnectionInfo, Address, bool), String> {
    let info = url.into_connection_info().map_err(|error| format!("{error}: {FORMS}"))?;
    let (address, tls) = match info.addr() {
        ConnectionAddr::Tcp(host, port) => (Address::Tcp { host: host.clone(), port: *port }, false),
        ConnectionAddr::TcpTls { insecure: true, .. } => {
            return Err("certificates are always checked: name your own authority with --redis-ca-file instead of #insecure".to_owned());
        }
        ConnectionAddr::TcpTls { host, port, .. } => (Address::Tcp { host: host.clone(), port: *port }, true),
        ConnectionAddr::Unix(path) => (Address::Unix(path.clone()), false),
        _ => return Err(FORMS.to_owned()),
    };
    Ok((info, address, tls))
}

fn place(kind: Kind, tls: bool, info: &ConnectionInfo) -> Place {
    let settings = info.redis_settings();
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Place { kind, tls, db: settings.db(), user: owned(settings.username()), password: owned(settings.password()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    #[track_caller]
    fn check(url: &str, kind: &Kind) -> Place {
        let place = parse(url).unwrap_or_else(|problem| panic!("{url}: {problem}"));
        assert_eq!(&place.kind, kind, "{url}");
        place
    }

    #[test]
    fn one_server_in_each_form() {
        let place = check("redis://u:p%40ss@redis.example:7000/3", &Kind::One(tcp("redis.example", 7000)));
        assert_eq!((place.user.as_deref(), place.password.as_deref(), place.db, place.tls), (Some("u"), Some("p@ss"), 3, false));
        assert!(check("rediss://redis.example", &Kind::One(tcp("redis.example", 6379))).tls);
        check("redis+unix:///run/redis.sock", &Kind::One(Address::Unix("/run/redis.sock".into())));
    }

    #[test]
    fn sentinels_and_the_master_they_watch() {
        let kind = Kind::Sentinel { sentinels: vec![tcp("a", 26_379), tcp("b", 5), tcp("::1", 26_379)], master: "main".to_owned() };
        let place = check("redis+sentinel://:secret@a,b:5,[::1]/main/2", &kind);
        assert_eq!((place.password.as_deref(), place.db), (Some("secret"), 2));
    }

    #[test]
    fn seeds_of_a_cluster() {
        let place = check("rediss+cluster://u:p@a:7000,b:7001", &Kind::Cluster { seeds: vec![tcp("a", 7000), tcp("b", 7001)] });
        assert!(place.tls && place.user.as_deref() == Some("u"));
    }

    #[test]
    fn what_is_none_is_refused_without_telling_the_password() {
        for url in [
            "",
            "x",
            "http://:secret@a",
            "redis+sentinel://:secret@a",
            "redis+cluster://:secret@a/1",
            "redis+cluster://:secret@a:x",
            "rediss://:secret@a/#insecure",
        ] {
            let problem = parse(url).err().unwrap_or_else(|| panic!("{url} was taken")).to_string();
            assert!(!problem.contains("secret"), "{problem}");
        }
    }

    #[test]
    fn servers_name_each_other_also_without_a_host() {
        let by = tcp("here", 1);
        assert_eq!(Address::named("10.0.0.1:7000", &by), Some(tcp("10.0.0.1", 7000)));
        assert_eq!(Address::named("2001:db8::1:7000", &by), Some(tcp("2001:db8::1", 7000)));
        assert_eq!(Address::named(":7000", &by), Some(tcp("here", 7000)));
        assert_eq!(Address::named("nonsense", &by), None);
    }
}
