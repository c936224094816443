//! The checked file: plain values, no serde, nothing left to go wrong.

use std::collections::BTreeMap;

use super::{Mistake, Pattern, compile};
use crate::identity::Settings as Identity;
use crate::limit::{Field, Part, Policy, Problem, Units};

/// A checked `limit.yaml`. Every policy that can be put together from its layers alone is known to compile.
///
/// The default is the empty file's meaning, were it allowed: built-in limits, no tiers and no routes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// The layer above the built-in values.
    pub defaults: Part,
    /// Layers for users of a tier.
    pub tiers: BTreeMap<Box<str>, Tier>,
    /// In the order of the file: the first that matches wins.
    pub routes: Vec<Route>,
    /// Who comes without a name.
    pub anonymous: Anonymous,
    /// Who is believed.
    pub identity: Identity,
    /// What happens without the store.
    pub store: StoreSettings,
}

/// The layers of a tier.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tier {
    /// In general.
    pub part: Part,
    /// On routes with limits of their own, by the route's name.
    pub routes: BTreeMap<Box<str>, Part>,
}

/// A kind of request that is treated in its own way.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// `[a-z0-9][a-z0-9_-]{0,63}`, unique in the file: also a label and a part of keys.
    pub name: Box<str>,
    /// Which paths.
    pub pattern: Pattern,
    /// Which methods, in capitals; none means all. `GET` does not include `HEAD`.
    pub methods: Vec<Box<str>>,
    /// Units that a request costs which does not say: 1 … 1e9.
    pub cost: Units,
    /// The route's own layer. If there is one, even an empty one, each subject has a bucket of its own for this route.
    pub limits: Option<Part>,
    /// What happens here without the store, if not what [`StoreSettings`] says.
    pub on_store_failure: Option<OnFailure>,
}

/// The layers of anonymous traffic; they stand where a user's tier would.
#[derive(Debug, Clone, PartialEq)]
pub struct Anonymous {
    /// For all of it together. Without one every address is on its own.
    pub shared: Option<Part>,
    /// For each address. Its algorithm is `sliding_window` unless the file says otherwise here.
    pub per_address: Part,
}

/// What happens without the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreSettings {
    /// Where a route does not say otherwise.
    pub on_failure: OnFailure,
}

/// What is answered while the store cannot be asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum OnFailure {
    /// Everything is admitted.
    Allow,
    /// Nothing is.
    Deny,
    /// This process decides in its own memory, with its share of the policy.
    #[default]
    Local,
}

impl OnFailure {
    /// The words in the file, in the order of the variants.
    pub const WORDS: [&'static str; 3] = ["allow", "deny", "local"];

    /// The word in the file and in labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::WORDS[self as usize]
    }

    /// The one of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Allow, Self::Deny, Self::Local].into_iter().find(|one| one.name() == name)
    }
}

impl Default for Anonymous {
    fn default() -> Self {
        Self { shared: None, per_address: Self::per_address(&Part::default()) }
    }
}

impl Anonymous {
    /// The layer for addresses that says what `written` does, and the algorithm if that does not.
    pub(super) fn per_address(written: &Part) -> Part {
        let mut part = Part::default();
        // The word is one of the field's own; a test holds that it is taken.
        let _ = part.set_word(Field::Algorithm, "sliding_window");
        part.lay_over(written);
        part
    }
}

impl Route {
    /// Whether a request is of this kind.
    #[must_use]
    pub fn matches(&self, path: &str, method: &str) -> bool {
        (self.methods.is_empty() || self.methods.iter().any(|own| **own == *method)) && self.pattern.matches(path)
    }
}

impl Config {
    /// Reads `text`. The warnings name what is allowed but not what an operator would expect.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn from_yaml(text: &str) -> Result<(Self, Vec<Mistake>), Vec<Mistake>> {
        compile::compile(text)
    }

    /// The first route that takes this request. The path is compared as it stands, up to a `?`: who passes it on has brought it
    /// into the form that the service behind goes by. Without a method (an empty one) only routes for all methods match.
    #[must_use]
    pub fn route(&self, path: &str, method: &str) -> Option<&Route> {
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        self.routes.iter().find(|route| route.matches(path, method))
    }

    /// The route of that name.
    #[must_use]
    pub fn route_named(&self, name: &str) -> Option<&Route> {
        self.routes.iter().find(|route| *route.name == *name)
    }

    /// What happens without the store, on `route` if the request is on one.
    #[must_use]
    pub fn on_failure(&self, route: Option<&Route>) -> OnFailure {
        route.and_then(|route| route.on_store_failure).unwrap_or(self.store.on_failure)
    }

    /// The policy of a user with this tier and these layers of its own, weakest first, where no route has limits of its own. For
    /// everything else: [`Self::layers`].
    ///
    /// # Errors
    /// When the layers do not fit together.
    pub fn policy(&self, tier: Option<&str>, own: &[&Part]) -> Result<Policy, Vec<Problem>> {
        let mut merged = self.defaults.clone();
        if let Some(tier) = tier.and_then(|name| self.tiers.get(name)) {
            merged.lay_over(&tier.part);
        }
        for part in own {
            merged.lay_over(part);
        }
        Policy::compile(&merged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Algorithm;

    #[test]
    fn without_a_file_this_machine_is_trusted_and_addresses_have_windows() {
        let config = Config::default();
        let shown: Vec<_> = config.identity.trusted_peers.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["127.0.0.0/8", "::1/128"]);
        assert_eq!(config.identity.trusted_proxies, config.identity.trusted_peers);
        let policy = Policy::compile(&config.anonymous.per_address).expect("a policy");
        assert_eq!(policy.algorithm(), Algorithm::SlidingWindow);
        assert_eq!(config.on_failure(None), OnFailure::Local);
    }

    #[test]
    fn every_word_for_a_failed_store_is_read_as_written() {
        for word in OnFailure::WORDS {
            assert_eq!(OnFailure::from_name(word).map(OnFailure::name), Some(word));
        }
        assert_eq!(OnFailure::from_name("open"), None);
    }
}
