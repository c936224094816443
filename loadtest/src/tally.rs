//! What came back, counted while it comes, and the figures made of it. No clock and no I/O.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::client::{Reason, Reply};
use crate::scenario::Group;
use crate::stats::{Latencies, jain, mean, most_within, variance};

/// Figures by name: `_ms` are milliseconds, `_us` microseconds, `_x_` ratios.
pub(crate) type Figures = BTreeMap<String, f64>;

/// Points of a line over time; the longest run has no more.
const SLOTS: usize = 100;
/// A slot is at least so long, s.
const LEAST_SLOT: f64 = 0.1;
/// The percentiles of a curve.
const SHARES: [f64; 11] = [0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 1.0];

/// What one user got.
#[derive(Debug, Clone, Default)]
struct User {
    requests: u64,
    successes: u64,
    /// The burst that is under way, and whether all of it was admitted at once so far.
    burst: Option<(u64, bool)>,
    /// When it was admitted, µs; kept on the virtual clock only.
    admitted_at: Vec<i64>,
}

#[derive(Debug, Clone, Default)]
struct Slot {
    answers: u64,
    refused: u64,
    degraded: u64,
    failed: u64,
    worst: f64,
}

/// One group, or several counted together.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    users: Vec<User>,
    /// Requests, whatever it took to have them decided; exchanges are their tries.
    requests: u64,
    first_tries: u64,
    successes: u64,
    exchanges: u64,
    refused: BTreeMap<&'static str, u64>,
    degraded: u64,
    failed: u64,
    bursts: u64,
    whole_bursts: u64,
    answer: Latencies,
    in_all: Latencies,
    slots: Vec<Slot>,
    slot_seconds: f64,
    burst_size: u64,
}

/// A point of a line over time.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Point {
    pub at_seconds: f64,
    pub answers_per_second: f64,
    pub refused_per_second: f64,
    pub degraded_per_second: f64,
    pub failed_per_second: f64,
    pub worst_ms: f64,
}

/// How a request ended.
pub(crate) struct Ended {
    /// Whose, counted within the group; who acts together is not told apart.
    pub user: Option<usize>,
    /// The how manieth of this user.
    pub index: u64,
    /// From the intended start to the end, s.
    pub in_all: f64,
    pub at_first: bool,
    pub success: bool,
}

impl Tally {
    /// Nothing yet, of a run of at most so many seconds.
    pub(crate) fn new(group: Option<&Group>, seconds: f64) -> Self {
        let users = group.filter(|group| group.each.is_some()).map_or(0, |group| usize::try_from(group.users).unwrap_or(0));
        let burst = group.and_then(Group::pace).and_then(|pace| pace.burst);
        Self {
            users: vec![User::default(); users],
            requests: 0,
            first_tries: 0,
            successes: 0,
            exchanges: 0,
            refused: BTreeMap::new(),
            degraded: 0,
            failed: 0,
            bursts: 0,
            whole_bursts: 0,
            answer: Latencies::default(),
            in_all: Latencies::default(),
            slots: vec![Slot::default(); SLOTS],
            slot_seconds: (seconds / SLOTS as f64).max(LEAST_SLOT),
            burst_size: burst.map_or(0, |burst| burst.size),
        }
    }

    /// Notes one exchange that ended `at` seconds after the start and took so many; none when no answer came.
    pub(crate) fn exchange(&mut self, at: f64, took: f64, reply: Option<&Reply>) {
        self.exchanges += 1;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index, cut to the slots there are")]
        let slot = &mut self.slots[((at / self.slot_seconds) as usize).min(SLOTS - 1)];
        slot.answers += 1;
        slot.worst = slot.worst.max(took);
        let Some(reply) = reply.filter(|reply| matches!(reply.status, 200 | 429 | 503)) else {
            slot.failed += 1;
            self.failed += 1;
            return;
        };
        self.answer.add(took);
        if reply.status != 200 {
            slot.refused += 1;
            let reason = match reply.reason {
                _ if reply.status == 503 => "store_away",
                Reason::Bucket => "bucket",
                Reason::Window => "window",
                Reason::Other => "other",
            };
            *self.refused.entry(reason).or_default() += 1;
        }
        self.degraded += u64::from(reply.degraded);
        slot.degraded += u64::from(reply.degraded);
    }

    /// Notes how a request ended.
    pub(crate) fn ended(&mut self, ended: &Ended) {
        self.requests += 1;
        self.first_tries += u64::from(ended.at_first);
        self.successes += u64::from(ended.success);
        if ended.success {
            self.in_all.add(ended.in_all);
        }
        let Some(user) = ended.user.and_then(|user| self.users.get_mut(user)) else { return };
        user.requests += 1;
        user.successes += u64::from(ended.success);
        // A size of 0 is no burst.
        let Some(burst) = ended.index.checked_div(self.burst_size) else { return };
        let so_far = user.burst.filter(|(number, _)| *number == burst).is_none_or(|(_, whole)| whole);
        user.burst = Some((burst, so_far && ended.at_first));
        if ended.index % self.burst_size == self.burst_size - 1 {
            self.bursts += 1;
            self.whole_bursts += u64::from(so_far && ended.at_first);
        }
    }

    /// Notes when a user was admitted, µs.
    pub(crate) fn admitted_at(&mut self, user: usize, at: i64) {
        if let Some(user) = self.users.get_mut(user) {
            user.admitted_at.push(at);
        }
    }

    /// Counts another group in.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.users.extend(other.users.iter().cloned());
        self.requests += other.requests;
        self.first_tries += other.first_tries;
        self.successes += other.successes;
        self.exchanges += other.exchanges;
        for (reason, count) in &other.refused {
            *self.refused.entry(reason).or_default() += count;
        }
        self.degraded += other.degraded;
        self.failed += other.failed;
        self.bursts += other.bursts;
        self.whole_bursts += other.whole_bursts;
        self.answer.merge(&other.answer);
        self.in_all.merge(&other.in_all);
        for (slot, other) in self.slots.iter_mut().zip(&other.slots) {
            slot.answers += other.answers;
            slot.refused += other.refused;
            slot.degraded += other.degraded;
            slot.failed += other.failed;
            slot.worst = slot.worst.max(other.worst);
        }
    }

    /// Exchanges so far.
    pub(crate) const fn exchanges(&self) -> u64 {
        self.exchanges
    }

    /// The success rate of each user that asked, lowest first.
    pub(crate) fn success_rates(&self) -> Vec<f64> {
        let asked = self.users.iter().filter(|user| user.requests > 0);
        let mut rates: Vec<f64> = asked.map(|user| user.successes as f64 / user.requests as f64).collect();
        rates.sort_by(f64::total_cmp);
        rates
    }

    /// (share, latency of the answer in ms): a curve.
    pub(crate) fn curve(&self) -> Vec<(f64, f64)> {
        SHARES.iter().map(|share| (*share, self.answer.quantile_ms(*share))).collect()
    }

    /// What happened over time, as far as anything did.
    pub(crate) fn points(&self) -> Vec<Point> {
        let used = self.slots.iter().rposition(|slot| slot.answers > 0).map_or(0, |last| last + 1);
        let rate = |count: u64| count as f64 / self.slot_seconds;
        let point = |(index, slot): (usize, &Slot)| Point {
            at_seconds: index as f64 * self.slot_seconds,
            answers_per_second: rate(slot.answers),
            refused_per_second: rate(slot.refused),
            degraded_per_second: rate(slot.degraded),
            failed_per_second: rate(slot.failed),
            worst_ms: slot.worst * 1e3,
        };
        self.slots[..used].iter().enumerate().map(point).collect()
    }

    /// All that can be said of it; `took` is how long it took, s, and `window` the policy's window, s.
    pub(crate) fn figures(&self, took: f64, window: f64) -> Figures {
        let mut figures = Figures::new();
        let mut set = |name: &str, value: f64| figures.insert(name.to_owned(), value);
        let share = |count: u64| if self.requests == 0 { 0.0 } else { count as f64 / self.requests as f64 };
        set("requests", self.requests as f64);
        set("exchanges", self.exchanges as f64);
        set("answers_per_second", self.exchanges as f64 / took.max(1e-9));
        set("first_try_share", share(self.first_tries));
        set("success_share", share(self.successes));
        set("failed", self.failed as f64);
        set("degraded", self.degraded as f64);
        for reason in ["bucket", "window", "store_away", "other"] {
            set(&format!("refused_{reason}"), self.refused.get(reason).copied().unwrap_or(0) as f64);
        }
        let rates = self.success_rates();
        if let (Some(least), Some(most)) = (rates.first(), rates.last()) {
            set("success_mean", mean(&rates));
            set("success_min", *least);
            set("success_max", *most);
            set("success_variance", variance(&rates));
            set("jain", jain(&rates));
        }
        if self.bursts > 0 {
            set("bursts_whole", self.whole_bursts as f64 / self.bursts as f64);
        }
        if self.users.iter().any(|user| !user.admitted_at.is_empty()) {
            #[expect(clippy::cast_possible_truncation, reason = "thirty days at most")]
            let window_us = (window * 1e6).round() as i64;
            let most = self.users.iter().map(|user| most_within(&user.admitted_at, window_us)).max();
            set("most_in_a_window", most.unwrap_or(0) as f64);
        }
        for (name, latencies) in [("answer", &self.answer), ("in_all", &self.in_all)] {
            for (suffix, share) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)] {
                set(&format!("{name}_{suffix}_ms"), latencies.quantile_ms(share));
            }
        }
        figures
    }
}
