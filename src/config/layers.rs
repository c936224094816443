//! Which value wins, and where it comes from.
//!
//! Weakest first: built-in, `defaults`, the user's tier, the user's override, its temporary part. On a route with limits of its
//! own: built-in, `defaults`, tier, route, the tier's part for that route, the user's override for that route, its temporary part.
//! Anonymous traffic has its part of `anonymous` where a user has a tier. One thing crosses: a `block` or `bypass` of the user's
//! general override holds on every route, so that nobody who is blocked finds a way round.

use std::borrow::Cow;

use super::{Config, Route};
use crate::limit::{Field, Part, Policy, Problem, Value};

/// Where a value comes from, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Nobody said anything.
    BuiltIn,
    /// The file's `defaults`.
    Defaults,
    /// The user's tier.
    Tier,
    /// The file's `anonymous`.
    Anonymous,
    /// The route's `limits`.
    Route,
    /// What the user's tier says for the route.
    TierOnRoute,
    /// The user's override.
    Override,
    /// The part of the override that ends by itself.
    Temporary,
}

impl Source {
    /// The word for it in answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::Defaults => "defaults",
            Self::Tier => "tier",
            Self::Anonymous => "anonymous",
            Self::Route => "route",
            Self::TierOnRoute => "tier-on-route",
            Self::Override => "override",
            Self::Temporary => "temporary",
        }
    }
}

/// Whose policy is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who<'a> {
    /// A user, of this tier. A tier that the file does not know adds nothing.
    User {
        /// The tier's name.
        tier: Option<&'a str>,
    },
    /// All anonymous traffic together.
    SharedAnonymous,
    /// One address.
    Address,
}

/// What is stored for one subject, in general or for one route.
#[derive(Debug, Clone, Copy, Default)]
pub struct Own<'a> {
    /// What holds until it is changed.
    pub standing: Option<&'a Part>,
    /// What lies over it for a while. Whoever passes it has seen that its time is not over.
    pub temporary: Option<&'a Part>,
}

/// What is stored for one subject.
#[derive(Debug, Clone, Copy, Default)]
pub struct Overrides<'a> {
    /// In general. On a route with limits of its own only its `block` or `bypass` counts.
    pub general: Own<'a>,
    /// For the route at hand; counts only if that has limits of its own.
    pub route: Own<'a>,
}

/// The layers of one policy, weakest first, each with its source.
#[derive(Debug, Clone, Default)]
pub struct Layers<'a>(Vec<(Source, Cow<'a, Part>)>);

impl Config {
    /// The layers that apply to `who` on `route`.
    #[must_use]
    pub fn layers<'a>(&'a self, who: Who<'a>, route: Option<&'a Route>, overrides: Overrides<'a>) -> Layers<'a> {
        let mut layers = Layers::default();
        layers.put(Source::Defaults, Some(&self.defaults));
        let tier = match who {
            Who::User { tier } => tier.and_then(|name| self.tiers.get(name)),
            Who::SharedAnonymous | Who::Address => None,
        };
        layers.put(Source::Tier, tier.map(|tier| &tier.part));
        layers.put(
            Source::Anonymous,
            match who {
                Who::User { .. } => None,
                Who::SharedAnonymous => self.anonymous.shared.as_ref(),
                Who::Address => Some(&self.anonymous.per_address),
            },
        );
        let Some((route, limits)) = route.and_then(|route| Some((route, route.limits.as_ref()?))) else {
            layers.put_own(overrides.general);
            return layers;
        };
        layers.put(Source::Route, Some(limits));
        layers.put(Source::TierOnRoute, tier.and_then(|tier| tier.routes.get(&route.name)));
        layers.put_own(overrides.route);
        layers.put_crossing_mode(overrides.general);
        layers
    }
}

impl<'a> Layers<'a> {
    fn put(&mut self, source: Source, part: Option<&'a Part>) {
        self.0.extend(part.map(|part| (source, Cow::Borrowed(part))));
    }

    fn put_own(&mut self, own: Own<'a>) {
        self.put(Source::Override, own.standing);
        self.put(Source::Temporary, own.temporary);
    }

    /// The general override's mode, where that must hold on every route.
    fn put_crossing_mode(&mut self, general: Own<'a>) {
        let mode = |part: Option<&Part>| part.and_then(|part| part.get(Field::Mode)).and_then(Value::word);
        let (source, word) = match (mode(general.temporary), mode(general.standing)) {
            (Some(word), _) => (Source::Temporary, word),
            (None, Some(word)) => (Source::Override, word),
            (None, None) => return,
        };
        let mut part = Part::default();
        if matches!(word, "block" | "bypass") && part.set_word(Field::Mode, word).is_ok() {
            self.0.push((source, Cow::Owned(part)));
        }
    }

    /// The layers, weakest first. Built-in values are none.
    pub fn iter(&self) -> impl Iterator<Item = (Source, &Part)> {
        self.0.iter().map(|(source, part)| (*source, part.as_ref()))
    }

    /// All layers in one.
    #[must_use]
    pub fn merged(&self) -> Part {
        let mut merged = Part::default();
        for (_, part) in self.iter() {
            merged.lay_over(part);
        }
        merged
    }

    /// The policy.
    ///
    /// # Errors
    /// When the layers do not fit together; with layers of the file alone they always do.
    pub fn policy(&self) -> Result<Policy, Vec<Problem>> {
        Policy::compile(&self.merged())
    }

    /// Where the value of `field` comes from.
    #[must_use]
    pub fn source(&self, field: Field) -> Source {
        let set = self.0.iter().rev().find(|(_, part)| part.get(field).is_some());
        set.map_or(Source::BuiltIn, |(source, _)| *source)
    }
}
