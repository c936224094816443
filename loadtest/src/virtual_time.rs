//! The same traffic on a virtual clock: every decision is made by `weir simulate`'s own replay, and answers take no time. So what
//! the limits do is seen without what the machine does.
//!
//! Who obeys asks again after a refusal, so the trace is made while it is replayed: one line at a time, each of it due next.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;

use weir::clock::ManualClock;
use weir::config::{self, Config};
use weir::identity::Subject;
use weir::limit::{Decision, Micros, Reason as Why};
use weir::simulate::{self, Backend, Options, SubjectFrom};
use weir::store::MemoryStore;

use crate::Failure;
use crate::client::{Reason, Reply};
use crate::plan::{intended, stagger};
use crate::scenario::{Group, Retry, Scenario, Variant};
use crate::tally::{Ended, Tally};

/// 1 January 2026, µs: any time will do, and the same one each time gives the same figures.
const START: Micros = 1_767_225_600_000_000;
const US: f64 = 1e6;

/// One user's request under way.
struct Client {
    group: usize,
    user: u64,
    index: u64,
    start: f64,
    /// When it was asked first, s: later than it should have been when the request before was held up.
    asked: f64,
    tries: u32,
}

/// Whose turn is next, and what came of the turns before.
struct World<'a> {
    scenario: &'a Scenario,
    groups: Vec<(Group, Tally)>,
    clients: Vec<Client>,
    numbers: HashMap<String, usize>,
    /// (µs since the start, client), earliest first.
    due: BinaryHeap<Reverse<(Micros, usize)>>,
}

/// Replays a variant; each group with what came back.
///
/// # Errors
/// When the limits are wrong, or two groups are the same users.
pub(crate) fn run(scenario: &Scenario, variant: &Variant) -> Result<Vec<(Group, Tally)>, Failure> {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile()?;
    file.write_all(scenario.limits(variant).to_string().as_bytes())?;
    let config: Config = config::load(file.path()).map_err(|error| error.to_string())?.config;
    let world = RefCell::new(World::new(scenario, scenario.groups(variant))?);
    let store = MemoryStore::new(1_000_000, Arc::new(ManualClock::new(START)));
    let options = Options { config: &config, subject_from: SubjectFrom::User };
    let mut answered = |subject: &Subject, at: Micros, decision: &Decision| {
        world.borrow_mut().answered(&subject.to_string(), at - START, decision);
        Ok(())
    };
    let report = simulate::replay(Trace(&world, Vec::new()), &options, &Backend::Memory(&store), &mut answered)?;
    drop(report);
    Ok(world.into_inner().groups)
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, groups: &[Group]) -> Result<Self, Failure> {
        let tallies = groups.iter().map(|group| (group.clone(), Tally::new(Some(group), scenario.seconds))).collect();
        let mut world = Self { scenario, groups: tallies, clients: Vec::new(), numbers: HashMap::new(), due: BinaryHeap::new() };
        for (number, group) in groups.iter().enumerate() {
            for user in 0..group.users {
                let client = world.clients.len();
                if world.numbers.insert(group.user(user), client).is_some() {
                    return Err(format!("groups.{}: on a virtual clock no two groups may be the same users", group.name).into());
                }
                world.clients.push(Client { group: number, user, index: 0, start: 0.0, asked: 0.0, tries: 0 });
                world.next(client, 0.0);
            }
        }
        Ok(world)
    }

    /// A client's next request, not before `now`.
    fn next(&mut self, number: usize, now: f64) {
        let client = &mut self.clients[number];
        let group = &self.groups[client.group].0;
        let Some(pace) = group.pace() else { return };
        let Some(at) = intended(pace, client.index).filter(|_| pace.requests.is_none_or(|requests| client.index < requests)) else {
            return;
        };
        client.start = group.start_seconds + stagger(group, client.user) + at;
        client.tries = 0;
        if client.start < self.scenario.seconds {
            client.asked = client.start.max(now);
            self.due.push(Reverse((micros(client.asked), number)));
        }
    }

    fn answered(&mut self, user: &str, at: Micros, decision: &Decision) {
        let Some(&number) = self.numbers.get(user) else { return };
        let now = at as f64 / US;
        let reply = reply(decision);
        let client = &mut self.clients[number];
        client.tries += 1;
        let (group, tally) = &mut self.groups[client.group];
        let user = usize::try_from(client.user).unwrap_or(usize::MAX);
        tally.exchange(now, 0.0, Some(&reply));
        if decision.admitted {
            tally.admitted_at(user, at);
        }
        let again = reply
            .retry_after
            .filter(|wait| group.retry == Retry::Obey && now + wait - client.asked <= self.scenario.success_within_seconds);
        if let Some(wait) = again.filter(|_| !decision.admitted) {
            self.due.push(Reverse((at + micros(wait).max(1), number)));
            return;
        }
        let in_all = now - client.start;
        let at_first = decision.admitted && client.tries == 1;
        // Asked again only as long as it could still be a success.
        let success = decision.admitted;
        tally.ended(&Ended { user: Some(user), index: client.index, in_all, at_first, success });
        client.index += 1;
        self.next(number, now);
    }
}

fn micros(seconds: f64) -> Micros {
    #[expect(clippy::cast_possible_truncation, reason = "a day at most")]
    let micros = (seconds * US).round() as Micros;
    micros
}

fn reply(decision: &Decision) -> Reply {
    let reason = match decision.reason {
        Some(Why::Bucket) => Reason::Bucket,
        Some(Why::Window) => Reason::Window,
        _ => Reason::Other,
    };
    let retry_after = decision.retry_after.micros().map(|wait| wait as f64 / US);
    Reply { status: if decision.admitted { 200 } else { 429 }, reason, retry_after, degraded: false }
}

/// The trace: a line is made when it is asked for, and with it everything that was answered before is known.
struct Trace<'a, 'b>(&'a RefCell<World<'b>>, Vec<u8>);

impl Read for Trace<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut ready = self.fill_buf()?;
        let read = ready.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for Trace<'_, '_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.1.is_empty() {
            let mut world = self.0.borrow_mut();
            let Some(Reverse((at, client))) = world.due.pop() else { return Ok(&[]) };
            let client = &world.clients[client];
            let user = world.groups[client.group].0.user(client.user);
            writeln!(self.1, r#"{{"at":{},"user":"{user}","cost":1}}"#, START + at)?;
        }
        Ok(&self.1)
    }

    fn consume(&mut self, amount: usize) {
        self.1.drain(..amount);
    }
}
