//! `limit.yaml`: what may be written, checked into what may be relied on.

use std::collections::BTreeMap;

use crate::limit::{Part, Policy, Problem};

/// A checked `limit.yaml`. Every policy that can be put together from its layers alone is known to compile.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The layer above the built-in values.
    pub defaults: Part,
    /// Layers for users of a tier.
    pub tiers: BTreeMap<Box<str>, Tier>,
}

/// The layer of a tier.
#[derive(Debug, Clone, Default)]
pub struct Tier {
    /// In general.
    pub part: Part,
}

impl Config {
    /// The policy of a subject with this tier and these layers of its own, weakest first.
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
