//! A config in force, with what is worked out from it once.

use std::sync::Arc;

use super::anonymous::Gate;
use crate::config::{Config, OnFailure, Overrides, Route, Who};
use crate::limit::Policy;

/// The policies of one place for those who have nothing of their own.
pub(super) struct Policies {
    pub(super) user: Arc<Policy>,
    pub(super) shared: Option<Arc<Policy>>,
    pub(super) address: Arc<Policy>,
}

/// A config in force. One per reload; a request uses one from its beginning to its end.
pub(super) struct Snapshot {
    pub(super) config: Arc<Config>,
    general: (Policies, Gate),
    /// For each route: its own, if it has limits of its own.
    routes: Vec<Option<(Policies, Gate)>>,
}

/// Where a request belongs.
pub(super) struct Place<'a> {
    pub(super) route: Option<&'a Route>,
    pub(super) policies: &'a Policies,
    pub(super) gate: &'a Gate,
    pub(super) on_failure: OnFailure,
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
        Self { config: Arc::new(config), general, routes }
    }

    /// The place of a request. Without a path it is on no route.
    pub(super) fn place(&self, path: Option<&str>, method: Option<&str>) -> Place<'_> {
        let path = path.map(|path| path.split_once('?').map_or(path, |(path, _)| path));
        let index = path.and_then(|path| self.config.routes.iter().position(|route| route.matches(path, method.unwrap_or(""))));
        let route = index.and_then(|index| self.config.routes.get(index));
        let own = index.and_then(|index| self.routes.get(index)?.as_ref());
        let (policies, gate) = own.unwrap_or(&self.general);
        Place { route, policies, gate, on_failure: self.config.on_failure(route) }
    }
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
