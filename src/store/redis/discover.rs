//! Finding out which server has what: by asking the Sentinels, or the servers of a cluster.

use std::time::Duration;

use futures_util::future::{FutureExt, select_ok};
use redis::{ErrorKind, FromRedisValue, RedisError, Value};
use tokio::time::timeout;

use super::connect::{Connector, To};
use super::url::{Address, Kind};

/// How long one of those asked may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many are asked at a time.
const MOST_ASKED: usize = 16;

/// Some slots, and who has them.
pub(super) struct Found {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) address: Address,
}

/// Asks all who may know, those in `known` included, and takes the first good answer.
pub(super) async fn discover(kind: &Kind, known: impl Iterator<Item = Address>, connector: &Connector) -> Result<Vec<Found>, RedisError> {
    let mut asked: Vec<Address> = Vec::new();
    let (first, known): (&[Address], Vec<Address>) = match kind {
        Kind::One(address) => return Ok(vec![Found { first: 0, last: u16::MAX, address: address.clone() }]),
        Kind::Sentinel { sentinels, .. } => (sentinels, Vec::new()),
        Kind::Cluster { seeds } => (seeds, known.collect()),
    };
    for address in first.iter().cloned().chain(known) {
        if !asked.contains(&address) && asked.len() < MOST_ASKED {
            asked.push(address);
        }
    }
    let answers = asked.iter().map(|address| {
        let answer = async move {
            match kind {
                Kind::Sentinel { master, .. } => master_of(address, master, connector).await,
                Kind::Cluster { .. } | Kind::One(_) => slots_of(address, connector).await,
            }
        };
        timeout(PATIENCE, answer)
            .map(|answer| answer.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())))
            .boxed()
    });
    select_ok(answers).await.map(|(found, _)| found)
}

/// The master that one Sentinel names, if it says so itself: for a while after a failover a Sentinel may name the old one.
async fn master_of(sentinel: &Address, name: &str, connector: &Connector) -> Result<Vec<Found>, RedisError> {
    let mut open = connector.open(sentinel, To::Sentinel).await?;
    let mut ask = redis::cmd("SENTINEL");
    ask.arg("get-master-addr-by-name").arg(name);
    let named: Option<(String, u16)> = ask.query_async(&mut open.connection).await?;
    let (host, port) = named.ok_or_else(|| unknown("the sentinels watch no master of that name"))?;
    let address = Address::of(&host, port, sentinel);
    let mut open = connector.open(&address, To::Server).await?;
    let role: Vec<Value> = redis::cmd("ROLE").query_async(&mut open.connection).await?;
    match role.first().map(String::from_redis_value_ref) {
        Some(Ok(role)) if role == "master" => Ok(vec![Found { first: 0, last: u16::MAX, address }]),
        _ => Err(unknown("the server that a sentinel names is no master")),
    }
}

/// Who has which slots, as one server of a cluster sees it.
async fn slots_of(server: &Address, connector: &Connector) -> Result<Vec<Found>, RedisError> {
    let mut open = connector.open(server, To::Server).await?;
    let ranges: Vec<Vec<Value>> = redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut open.connection).await?;
    let found = ranges.iter().map(|range| range_of(range, server)).collect::<Option<Vec<Found>>>();
    found.filter(|found| !found.is_empty()).ok_or_else(|| unknown("the server knows of no slots: is it part of a cluster?"))
}

/// `first, last, [host, port, …] of the master, those of its replicas`.
fn range_of(range: &[Value], by: &Address) -> Option<Found> {
    let [first, last, Value::Array(master), ..] = range else { return None };
    let [host, port, ..] = master.as_slice() else { return None };
    let number = |value: &Value| u16::from_redis_value_ref(value).ok();
    let host = Option::<String>::from_redis_value_ref(host).ok()?.unwrap_or_default();
    Some(Found { first: number(first)?, last: number(last)?, address: Address::of(&host, number(port)?, by) })
}

fn unknown(what: &'static str) -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, what))
}
