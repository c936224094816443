//! Traffic as it comes: every user with a rate has intended starts, and a request that starts late because an answer was late is
//! measured from when it should have started.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::client::{Connection, Reply, check, drive, post};
use crate::plan::{intended, stagger};
use crate::scenario::{Group, Identify, Retry, Scenario, Variant};
use crate::tally::{Ended, Tally};

/// How long a client waits before it connects again, and for its first sleep.
const RECONNECT_AFTER: Duration = Duration::from_millis(10);
const WARM_UP_CONNECTIONS: u64 = 64;

/// One group at work.
struct Crowd {
    group: Group,
    identify: Identify,
    address: SocketAddr,
    began: Instant,
    /// No request starts later, s.
    ends: f64,
    patience: f64,
    tally: Mutex<Tally>,
    next: AtomicU64,
}

/// Who is counted how, while and after it happens.
pub(crate) struct Live {
    crowds: Vec<Arc<Crowd>>,
}

impl Live {
    /// Sends what is to be sent before anything is measured, then begins.
    pub(crate) async fn begin(scenario: &Scenario, variant: &Variant, address: SocketAddr) -> Result<Self, Failure> {
        for group in scenario.groups(variant).iter().filter(|group| group.warm_up > 0) {
            let (users, total) = (group.users, group.users * group.warm_up);
            let (identify, group) = (scenario.identify, group.clone());
            drive(address, WARM_UP_CONNECTIONS, total, move |index| single(&group, identify, index % users)).await?;
        }
        let began = Instant::now();
        let crowd = |group: &Group| {
            Arc::new(Crowd {
                group: group.clone(),
                identify: scenario.identify,
                address,
                began,
                ends: scenario.seconds,
                patience: scenario.success_within_seconds,
                tally: Mutex::new(Tally::new(Some(group), scenario.seconds)),
                next: AtomicU64::new(0),
            })
        };
        Ok(Self { crowds: scenario.groups(variant).iter().map(crowd).collect() })
    }

    /// All of it, until every group is done or the time is over.
    pub(crate) async fn run(&self) -> Result<(), Failure> {
        let mut tasks = Vec::new();
        for crowd in &self.crowds {
            let alone = crowd.group.each.is_some();
            let count = if alone { crowd.group.users } else { crowd.group.connections };
            for number in 0..count {
                let crowd = Arc::clone(crowd);
                tasks.push(tokio::spawn(async move { if alone { crowd.user(number).await } else { crowd.connection().await } }));
            }
        }
        for task in tasks {
            task.await?;
        }
        Ok(())
    }

    /// Seconds since the begin, and exchanges so far.
    pub(crate) fn progress(&self) -> (f64, u64) {
        let seconds = self.crowds.first().map_or(0.0, |crowd| crowd.now());
        (seconds, self.crowds.iter().map(|crowd| crowd.tally().exchanges()).sum())
    }

    /// Each group with what came back.
    pub(crate) fn tallies(&self) -> Vec<(Group, Tally)> {
        self.crowds.iter().map(|crowd| (crowd.group.clone(), crowd.tally().clone())).collect()
    }
}

impl Crowd {
    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn tally(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until(&self, seconds: f64) {
        if seconds > self.now() {
            tokio::time::sleep_until((self.began + Duration::from_secs_f64(seconds)).into()).await;
        }
    }

    /// When the `index`th request should start, `behind` seconds later than the group; none when it should not.
    async fn start(&self, index: u64, behind: f64) -> Option<f64> {
        let pace = self.group.pace()?;
        if pace.requests.is_some_and(|requests| index >= requests) {
            return None;
        }
        let start =
            intended(pace, index).map_or_else(|| self.now().max(self.group.start_seconds), |at| self.group.start_seconds + behind + at);
        if start >= self.ends || self.now() >= self.ends {
            return None;
        }
        self.until(start).await;
        Some(start)
    }

    /// A user by itself: one request after the other, and the next one waits for the one before.
    async fn user(&self, number: u64) {
        let request = single(&self.group, self.identify, number);
        let behind = stagger(&self.group, number);
        let (mut wire, mut index) = (Wire::new(self.address), 0);
        while let Some(start) = self.start(index, behind).await {
            let (mut tries, asked) = (0, self.now());
            let admitted = loop {
                tries += 1;
                let reply = self.exchange(&mut wire, &request).await;
                let admitted = reply.is_some_and(|reply| reply.status == 200);
                let wait = reply.and_then(|reply| reply.retry_after).filter(|_| self.group.retry == Retry::Obey);
                match wait {
                    Some(wait) if !admitted && self.now() + wait - asked <= self.patience => self.until(self.now() + wait).await,
                    _ => break admitted,
                }
            };
            let in_all = self.now() - start;
            let user = usize::try_from(number).ok();
            // Whether it was late is the machine's doing; whether it had to wait is the limit's.
            let at_first = admitted && tries == 1;
            let success = at_first || (admitted && self.now() - asked <= self.patience);
            self.tally().ended(&Ended { user, index, in_all, at_first, success });
            index += 1;
        }
    }

    /// One connection of a group that acts together: it takes the next request that nobody has taken.
    async fn connection(&self) {
        let mut wire = Wire::new(self.address);
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(start) = self.start(index, 0.0).await else { return };
            let reply = self.exchange(&mut wire, &self.request(index)).await;
            let success = reply.is_some_and(|reply| reply.status == 200);
            self.tally().ended(&Ended { user: None, index, in_all: self.now() - start, at_first: success, success });
        }
    }

    async fn exchange(&self, wire: &mut Wire, request: &[u8]) -> Option<Reply> {
        let sent = Instant::now();
        let reply = wire.ask(request).await;
        self.tally().exchange(self.now(), sent.elapsed().as_secs_f64(), reply.as_ref());
        reply
    }

    fn request(&self, index: u64) -> Vec<u8> {
        let user = |index: u64| spread(index, self.group.users);
        let batch = u64::from(self.group.batch);
        if batch == 1 {
            return single(&self.group, self.identify, user(index));
        }
        let checks: Vec<_> = (0..batch).map(|place| format!(r#"{{"user":"{}"}}"#, self.group.user(user(index * batch + place)))).collect();
        post("/v1/check/batch", "", &format!(r#"{{"checks":[{}]}}"#, checks.join(",")))
    }
}

/// The user of the `index`th request, in an order that repeats none soon.
pub(crate) const fn spread(index: u64, users: u64) -> u64 {
    index.wrapping_mul(2_654_435_761) % users
}

fn single(group: &Group, identify: Identify, user: u64) -> Vec<u8> {
    let name = group.user(user);
    match identify {
        Identify::User => check(&format!(r#"{{"user":"{name}","cost":1}}"#)),
        Identify::ApiKey => post("/v1/check", &format!("x-api-key: secret-of-{name}\r\n"), r#"{"cost":1}"#),
    }
}

/// A connection that is made anew when it broke.
struct Wire {
    address: SocketAddr,
    connection: Option<Connection>,
}

impl Wire {
    const fn new(address: SocketAddr) -> Self {
        Self { address, connection: None }
    }

    /// None when no answer came.
    async fn ask(&mut self, request: &[u8]) -> Option<Reply> {
        if self.connection.is_none() {
            self.connection = Connection::open(self.address).await.ok();
        }
        let reply = match &mut self.connection {
            Some(connection) => connection.ask(request).await.ok(),
            None => None,
        };
        if reply.is_none() {
            self.connection = None;
            tokio::time::sleep(RECONNECT_AFTER).await;
        }
        reply
    }
}
