//! The servers of a deployment, and which of them has a slot.
//!
//! One Redis is a map with one server in it. With Sentinels that server's address is asked for; in a cluster there are several. Whatever
//! shows that the map may be out of date (a connection that broke, READONLY, MOVED) makes somebody look again, in the background, one
//! at a time; meanwhile the old map serves.
//!
//! A command is sent again, within its deadline, only when a server says that it did not run it. After a silence or a broken connection
//! nothing is ever sent again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError, RwLock};
use std::thread::ThreadId;
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::aio::PubSub;
use redis::{Cmd, FromRedisValue, Value};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::super::{ErrorKind, StoreError};
use super::connect::Connector;
use super::discover::{Found, discover};
use super::error::{Failed, Remedy, store_error};
use super::lane::Lane;
use super::pool::{Connection, Pool};
use super::slot::slot_of;
use super::url::{Address, Kind};
use crate::clock::monotonic;

/// How often a command may be sent in all, each time but the last with a server's word that it did not run.
const MOST_SENDS: usize = 8;
/// How long to wait when a server says that it may be able to answer in a moment.
const MOMENT: Duration = Duration::from_millis(10);
/// How long after a look at who has what the next one may begin.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// How many servers that others name are remembered until the next look.
const MOST_NAMED: usize = 16;

/// One server, and the connections to it.
pub(super) struct Node {
    address: Address,
    /// Tells it from others of this process.
    id: usize,
    connector: Arc<Connector>,
    /// By worker thread.
    lanes: RwLock<HashMap<ThreadId, Arc<Lane>>>,
    pool: Pool,
}

/// Who has which slots: first, last, and the server, in order.
type Map = Vec<(u16, u16, Arc<Node>)>;

/// The servers of a deployment.
pub(crate) struct Servers {
    kind: Kind,
    connector: Arc<Connector>,
    deadline: Duration,
    map: ArcSwap<Map>,
    /// Named by others since the last look, but not in the map: one that slots are moving to and that has none yet.
    named: StdMutex<Vec<Arc<Node>>>,
    stale: AtomicBool,
    /// Held by whoever looks: when the last look ended.
    looking: Arc<Mutex<Option<Instant>>>,
}

/// Makes a command: by the script's name, or (`whole`) with its text.
pub(super) type Make<'a> = &'a (dyn Fn(bool) -> Cmd + Sync);

impl Node {
    fn new(address: Address, connector: &Arc<Connector>, deadline: Duration) -> Arc<Self> {
        static IDS: AtomicUsize = AtomicUsize::new(0);
        let pool = Pool::new(Arc::clone(connector), address.clone(), deadline);
        Arc::new(Self {
            address,
            id: IDS.fetch_add(1, Ordering::Relaxed),
            connector: Arc::clone(connector),
            lanes: RwLock::default(),
            pool,
        })
    }

    /// The connection of a thread.
    fn lane(&self, thread: ThreadId) -> Arc<Lane> {
        if let Some(lane) = self.lanes.read().unwrap_or_else(PoisonError::into_inner).get(&thread) {
            return Arc::clone(lane);
        }
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(lanes.entry(thread).or_default())
    }
}

impl Servers {
    pub(super) fn new(kind: Kind, connector: Connector, deadline: Duration) -> Arc<Self> {
        let connector = Arc::new(connector);
        let map = match &kind {
            Kind::One(address) => vec![(0, u16::MAX, Node::new(address.clone(), &connector, deadline))],
            Kind::Sentinel { .. } | Kind::Cluster { .. } => Vec::new(),
        };
        let stale = AtomicBool::new(map.is_empty());
        Arc::new(Self {
            kind,
            connector,
            deadline,
            map: ArcSwap::from_pointee(map),
            named: StdMutex::default(),
            stale,
            looking: Arc::default(),
        })
    }

    /// Which of the servers has `key`, as a number.
    pub(super) fn part(&self, key: &str) -> usize {
        match self.kind {
            Kind::Cluster { .. } => self.owner(self.slot(key)).map_or(0, |node| node.id),
            Kind::One(_) | Kind::Sentinel { .. } => 0,
        }
    }

    /// Decides on the server that has `key`, on the connection of `thread`, until then.
    pub(super) async fn ask(self: &Arc<Self>, key: &str, make: Make<'_>, thread: ThreadId, until: Instant) -> Result<Value, StoreError> {
        let send = async |node: Arc<Node>, command: &Cmd, asking| {
            let answer = node.lane(thread).send(&node.connector, &node.address, command, asking, until).await;
            (node, answer)
        };
        let (mut command, mut there, mut slot) = (make(false), None, None);
        let mut sends = 0;
        loop {
            let (node, asking) = match there.take() {
                Some(there) => there,
                None => (self.node(*slot.get_or_insert_with(|| self.slot(key)), until).await?, false),
            };
            let (node, answer) = send(node, &command, asking).await;
            let failed = match answer {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            sends += 1;
            match self.remedy(&failed, &node, until, sends).await {
                Remedy::SendWhole => command = make(true),
                Remedy::Elsewhere { address, asking } => there = self.named(&address, &node).map(|node| (node, asking)),
                Remedy::Wait => {}
                Remedy::None => return Err(store_error(&failed)),
            }
        }
    }

    /// Runs one command on the server that has `key`, on a connection of the pool.
    pub(crate) async fn query<T: FromRedisValue>(self: &Arc<Self>, key: &str, command: &Cmd) -> Result<T, StoreError> {
        self.query_then(key, command, async |answer, _| answer).await
    }

    /// As [`Self::query`]; `then` has the answer and, for more, the connection that it came on.
    pub(crate) async fn query_then<T: FromRedisValue, R>(
        self: &Arc<Self>,
        key: &str,
        command: &Cmd,
        then: impl AsyncFnOnce(T, &mut Connection<'_>) -> R,
    ) -> Result<R, StoreError> {
        let until = self.until();
        let (mut there, mut sends) = (None, 0);
        loop {
            let node = match there.take() {
                Some(node) => node,
                None => self.node(self.slot(key), until).await?,
            };
            let failed = match node.pool.connection().await {
                Err(failed) => failed,
                Ok(mut connection) => match connection.try_query(command).await {
                    Ok(answer) => return Ok(then(answer, &mut connection).await),
                    Err(failed) => failed,
                },
            };
            sends += 1;
            match self.remedy(&failed, &node, until, sends).await {
                Remedy::Elsewhere { address, asking: false } => there = self.named(&address, &node),
                // A slot on its way: in a moment it will have arrived.
                Remedy::Elsewhere { asking: true, .. } => sleep(MOMENT).await,
                Remedy::Wait => {}
                Remedy::SendWhole | Remedy::None => return Err(store_error(&failed)),
            }
        }
    }

    /// Every server, in the order of slots.
    pub(super) async fn all(self: &Arc<Self>) -> Result<Vec<Arc<Node>>, StoreError> {
        self.node(0, self.until()).await?;
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        for (_, _, node) in self.map.load().iter() {
            if !nodes.iter().any(|known| Arc::ptr_eq(known, node)) {
                nodes.push(Arc::clone(node));
            }
        }
        Ok(nodes)
    }

    /// A new connection to listen on, to the server that has `channel` as a key (in a cluster every server hears everything).
    pub(crate) async fn listen(self: &Arc<Self>, channel: &str) -> Result<PubSub, StoreError> {
        let node = self.node(self.slot(channel), self.until()).await?;
        self.connector.listen(&node.address).await.map_err(|error| {
            self.look_again();
            store_error(&Failed::unsent(error))
        })
    }

    /// Whether the keys of a call must be of one slot.
    pub(super) const fn are_several(&self) -> bool {
        matches!(self.kind, Kind::Cluster { .. })
    }

    /// When the deadline of a command is over that is sent now.
    pub(super) fn until(&self) -> Instant {
        Instant::from_std(monotonic() + self.deadline)
    }

    fn slot(&self, key: &str) -> u16 {
        if matches!(self.kind, Kind::Cluster { .. }) { slot_of(key) } else { 0 }
    }

    fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        let map = self.map.load();
        let index = map.partition_point(|(_, last, _)| *last < slot);
        map.get(index).filter(|(first, _, _)| *first <= slot).map(|(_, _, node)| Arc::clone(node))
    }

    /// The server that has `slot`. Where nobody is known to, after a look.
    async fn node(self: &Arc<Self>, slot: u16, until: Instant) -> Result<Arc<Node>, StoreError> {
        if self.stale.load(Ordering::Relaxed)
            && let Ok(alone) = Arc::clone(&self.looking).try_lock_owned()
        {
            // In the background: whoever asked may go away meanwhile.
            let servers = Arc::clone(self);
            tokio::spawn(async move { servers.look(alone).await });
        }
        if let Some(node) = self.owner(slot) {
            return Ok(node);
        }
        let _ = timeout_at(until, self.looking.lock()).await;
        self.owner(slot).ok_or_else(|| StoreError::not_run(ErrorKind::Unavailable, "it is not known which server has the key"))
    }

    /// The server that another names.
    fn named(&self, text: &str, by: &Arc<Node>) -> Option<Arc<Node>> {
        let address = Address::named(text, &by.address)?;
        let map = self.map.load();
        if let Some((_, _, node)) = map.iter().find(|(_, _, node)| node.address == address) {
            return Some(Arc::clone(node));
        }
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = named.iter().find(|node| node.address == address) {
            return Some(Arc::clone(node));
        }
        let node = Node::new(address, &self.connector, self.deadline);
        if named.len() == MOST_NAMED {
            named.clear();
        }
        named.push(Arc::clone(&node));
        Some(node)
    }

    /// What to do about a command that failed. The waiting is done here.
    async fn remedy(&self, failed: &Failed, node: &Node, until: Instant, sends: usize) -> Remedy {
        if failed.is_of_the_server() {
            self.look_again();
        }
        let remedy = failed.remedy();
        if remedy == Remedy::None || sends >= MOST_SENDS {
            tracing::debug!(server = ?node.address, error = %failed.error, "a command failed");
            return Remedy::None;
        }
        if remedy == Remedy::Wait {
            let then = Instant::from_std(monotonic()) + MOMENT;
            if then >= until {
                return Remedy::None;
            }
            sleep(MOMENT).await;
        }
        remedy
    }

    /// The map may be out of date.
    fn look_again(&self) {
        if !matches!(self.kind, Kind::One(_)) {
            self.stale.store(true, Ordering::Relaxed);
        }
    }

    /// Finds out who has what, unless somebody just has.
    async fn look(&self, mut last: OwnedMutexGuard<Option<Instant>>) {
        if !self.stale.load(Ordering::Relaxed) {
            return;
        }
        if let Some(last) = *last {
            sleep_until(last + BETWEEN_LOOKS).await;
        }
        let map = self.map.load_full();
        let known = map.iter().map(|(_, _, node)| node.address.clone());
        // What fails from here on may be news.
        self.stale.store(false, Ordering::Relaxed);
        match discover(&self.kind, known, &self.connector).await {
            Ok(found) => self.map.store(Arc::new(self.keeping(&map, found))),
            Err(error) => {
                self.look_again();
                tracing::debug!(%error, "nobody says which server has what");
            }
        }
        *last = Some(Instant::from_std(monotonic()));
    }

    /// The map of what was found, with the servers that are known already as they are.
    fn keeping(&self, before: &Map, found: Vec<Found>) -> Map {
        let named = std::mem::take(&mut *self.named.lock().unwrap_or_else(PoisonError::into_inner));
        let before = before.iter().map(|(_, _, node)| Arc::clone(node)).chain(named);
        let mut known: HashMap<Address, Arc<Node>> = before.map(|node| (node.address.clone(), node)).collect();
        let mut map: Map = Vec::with_capacity(found.len());
        for Found { first, last, address } in found {
            let node = known.entry(address.clone()).or_insert_with(|| Node::new(address, &self.connector, self.deadline));
            map.push((first, last, Arc::clone(node)));
        }
        map.sort_by_key(|(first, _, _)| *first);
        map
    }
}

impl Node {
    /// A connection of its pool.
    pub(super) async fn connection(&self) -> Result<Connection<'_>, StoreError> {
        self.pool.connection().await.map_err(|failed| store_error(&failed))
    }
}
