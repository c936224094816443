//! A config in force, with what is worked out from it once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::anonymous::Gate;
use crate::config::{Config, OnFailure, Overrides, Own, Route, Who};
use crate::identity::Subject;
use crate::limit::{Micros, Policy};
use crate::overrides::Override;
use crate::telemetry::{Metrics, Outcomes, Tally};

static GENERATIONS: AtomicU64 = AtomicU64::new(0);

/// The policies of one place for those who have nothing of their own.
pub(super) struct Policies {
    pub(super) user: Arc<Policy>,
    pub(super) shared: Option<Arc<Policy>>,
    pub(super) address: Arc<Policy>,
}

impl Policies {
    /// What `subject` has if nothing is set for it.
    pub(super) fn inherited(&self, subject: &Subject) -> &Arc<Policy> {
        match subject {
            Subject::Address(_) => &self.address,
            Subject::Anonymous => self.shared.as_ref().unwrap_or(&self.user),
            Subject::User(_) | Subject::ApiKey(_) => &self.user,
        }
    }
}

/// A config in force. One per reload; a request uses one from its beginning to its end.
pub(super) struct Snapshot {
    pub(super) config: Arc<Config>,
    /// Tells this snapshot from every other of the process.
    pub(super) generation: u64,
    general: (Policies, Gate),
    /// For each route: its own, if it has limits of its own.
    routes: Vec<Option<(Policies, Gate)>>,
    /// Where what is decided on each route and tier is counted.
    tally: Option<Tally>,
}

/// Where a request belongs.
pub(super) struct Place<'a> {
    pub(super) route: Option<&'a Route>,
    pub(super) policies: &'a Policies,
    pub(super) gate: &'a Gate,
    pub(super) on_failure: OnFailure,
    pub(super) outcomes: Option<&'a Outcomes>,
}

impl Place<'_> {
    /// The route's name in keys: only a route with limits of its own has state of its own.
    pub(super) fn scope(&self) -> Option<&str> {
        self.route.filter(|route| route.limits.is_some()).map(|route| &*route.name)
    }
}

impl Snapshot {
    pub(super) fn new(config: Config) -> Self {
        let general = (policies(&config, None), Gate::default());
        let routes =
            config.routes.iter().map(|route| route.limits.as_ref().map(|_| (policies(&config, Some(route)), Gate::default()))).collect();
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        Self { config: Arc::new(config), generation, general, routes, tally: None }
    }

    /// Finds the counters of its routes and tiers in `metrics`, once.
    pub(super) fn counted_in(mut self, metrics: Option<&Arc<Metrics>>) -> Self {
        self.tally = metrics.map(|metrics| metrics.tally(&self.config));
        self
    }

    /// The counters of a tier.
    pub(super) fn tier(&self, name: &str) -> Option<&Outcomes> {
        self.tally.as_ref()?.tier(name)
    }

    /// The place of a request. Without a path it is on no route.
    pub(super) fn place(&self, path: Option<&str>, method: Option<&str>) -> Place<'_> {
        let path = path.map(|path| path.split_once('?').map_or(path, |(path, _)| path));
        self.at(path.and_then(|path| self.config.routes.iter().position(|route| route.matches(path, method.unwrap_or("")))))
    }

    /// The place of requests on the route of this name; nothing when there is none.
    pub(super) fn named(&self, name: &str) -> Option<Place<'_>> {
        self.config.routes.iter().position(|route| *route.name == *name).map(|index| self.at(Some(index)))
    }

    /// The place of the route that stands here in the file.
    fn at(&self, index: Option<usize>) -> Place<'_> {
        let route = index.and_then(|index| self.config.routes.get(index));
        let own = index.and_then(|index| self.routes.get(index)?.as_ref());
        let (policies, gate) = own.unwrap_or(&self.general);
        let outcomes = self.tally.as_ref().map(|tally| tally.route(index));
        Place { route, policies, gate, on_failure: self.config.on_failure(route), outcomes }
    }
}

impl Snapshot {
    /// The policy of a subject that has `general` set, and `own` on a route with limits of its own, at `now` (µs). What is set but makes no
    /// policy together with what lies below counts for nothing: what is inherited holds.
    pub(super) fn own_policy(&self, place: &Place<'_>, subject: &Subject, general: &Override, own: &Override, now: Micros) -> Arc<Policy> {
        let who = who(subject, general.tier_at(now));
        let layers = self.config.layers(who, place.route, Overrides { general: layer(general, now), route: layer(own, now) });
        match layers.policy() {
            Ok(policy) => Arc::new(policy),
            Err(problems) => {
                tracing::warn!(%subject, problem = %problems[0], "an override makes no policy with what it lies over: what is inherited holds");
                Arc::new(self.config.layers(who, place.route, Overrides::default()).policy().unwrap_or_default())
            }
        }
    }
}

/// Whose layers apply to `subject`, in this tier if it is a user.
pub(super) const fn who<'a>(subject: &Subject, tier: Option<&'a str>) -> Who<'a> {
    match subject {
        Subject::User(_) | Subject::ApiKey(_) => Who::User { tier },
        Subject::Anonymous => Who::SharedAnonymous,
        Subject::Address(_) => Who::Address,
    }
}

/// What is set, with its temporary part if that has not ended at `now`.
pub(super) fn layer(own: &Override, now: Micros) -> Own<'_> {
    Own { standing: Some(&own.standing.part), temporary: own.temporary_at(now).map(|layer| &layer.part) }
}

/// The compiler has shown that every combination of the file's layers is a policy; the built-in one is what is left if that were
/// ever untrue.
fn policies(config: &Config, route: Option<&Route>) -> Policies {
    let policy = |who| Arc::new(config.layers(who, route, Overrides::default()).policy().unwrap_or_default());
    Policies {
        user: policy(Who::User { tier: None }),
        shared: config.anonymous.shared.as_ref().map(|_| policy(Who::SharedAnonymous)),
        address: policy(Who::Address),
    }
}
