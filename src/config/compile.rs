//! From what is written to what may be relied on.
//!
//! Each section is read on its own first; then every combination of layers that the file alone can make is put together once, so
//! that no request finds two that do not fit. What does not fit is noted where the last of its layers completes it.

mod check;
mod identity;
mod routes;

use std::collections::BTreeMap;

use super::model::{Anonymous, Config, OnFailure, StoreSettings, Tier};
use super::raw::{Entry, Fields, Mistake, Mistakes, Node, Place, Placed, Reader, Value, parse};
use crate::limit::Field;
use routes::RawRoute;

/// More tiers than this are users, and belong into overrides. (Tiers times routes bounds the combinations, and the labels.)
pub(super) const MOST_TIERS: usize = 256;
/// More routes than this are paths, and belong into patterns.
pub(super) const MOST_ROUTES: usize = 256;

/// What is known of a file while it is read.
#[derive(Default)]
struct Compiler {
    reader: Reader,
    warnings: Mistakes,
}

/// A tier as written.
struct RawTier<'a> {
    name: &'a str,
    part: Placed,
    routes: Vec<TierRoute<'a>>,
}

/// What a tier says for one route.
struct TierRoute<'a> {
    name: &'a str,
    place: Place,
    path: String,
    part: Placed,
}

/// The sections with layers, as written.
#[derive(Default)]
struct Sections<'a> {
    defaults: Option<Placed>,
    tiers: Vec<RawTier<'a>>,
    routes: Vec<RawRoute<'a>>,
    shared: Option<Placed>,
    per_address: Option<Placed>,
}

/// Compiles a whole file.
pub(super) fn compile(text: &str) -> Result<(Config, Vec<Mistake>), Vec<Mistake>> {
    let mut compiler = Compiler::default();
    let root = match parse(text, &mut compiler.reader.mistakes) {
        Ok(root) => root,
        Err(last) => {
            compiler.reader.mistakes.push(last);
            return Err(compiler.reader.mistakes.into_sorted());
        }
    };
    let config = compiler.file(&root);
    if compiler.reader.mistakes.count() > 0 {
        return Err(compiler.reader.mistakes.into_sorted());
    }
    Ok((config, compiler.warnings.into_sorted()))
}

impl Compiler {
    fn file(&mut self, root: &Node) -> Config {
        let mut config = Config::default();
        let mut sections = Sections::default();
        let Some(mut file) = self.reader.map(root, "") else {
            return config;
        };
        if let Some(entry) = file.take("defaults") {
            sections.defaults = self.reader.part_at(&entry.node, "defaults");
        }
        if let Some(entry) = file.take("tiers") {
            sections.tiers = self.tiers(&entry.node);
        }
        if let Some(entry) = file.take("routes") {
            sections.routes = self.routes(&entry.node);
        }
        if let Some(entry) = file.take("anonymous") {
            self.anonymous(&entry.node, &mut sections);
        }
        if let Some(entry) = file.take("identity") {
            config.identity = self.identity(&entry.node);
        }
        if let Some(entry) = file.take("store") {
            config.store = self.store(&entry.node);
        }
        self.reader.finish(&file);
        self.check_tier_routes(&sections);
        self.check_shadowed(&sections.routes);
        self.check_layers(&sections);
        sections.put_into(&mut config);
        config
    }

    fn tiers<'a>(&mut self, node: &'a Node) -> Vec<RawTier<'a>> {
        let Some((fields, entries)) = self.names(node, "tiers", MOST_TIERS, "limits of single users are overrides") else {
            return Vec::new();
        };
        let tier = |entry: &'a Entry| {
            let path = fields.path(&entry.key);
            if Field::from_name(&entry.key).is_some() && !matches!(entry.node.value, Value::Map(_)) {
                let hint = format!("the name of a tier stands between tiers and {}", entry.key);
                self.reader.note(entry.place, &path, "unknown key", Some(hint));
                return None;
            }
            let mut own = self.reader.map(&entry.node, &path)?;
            let routes = own.take("routes").map(|entry| self.tier_routes(&entry.node, &own.path("routes")));
            let part = self.reader.part(&mut own);
            Some(RawTier { name: &entry.key, part, routes: routes.unwrap_or_default() })
        };
        entries.into_iter().filter_map(tier).collect()
    }

    fn tier_routes<'a>(&mut self, node: &'a Node, path: &str) -> Vec<TierRoute<'a>> {
        let Some((fields, entries)) = self.names(node, path, MOST_ROUTES, "use patterns with *") else {
            return Vec::new();
        };
        let part = |entry: &'a Entry| {
            let path = fields.path(&entry.key);
            let part = self.reader.part_at(&entry.node, &path)?;
            Some(TierRoute { name: &entry.key, place: entry.place, path, part })
        };
        entries.into_iter().filter_map(part).collect()
    }

    /// The entries of a map whose keys are names.
    fn names<'a>(&mut self, node: &'a Node, path: &str, most: usize, hint: &str) -> Option<(Fields<'a>, Vec<&'a Entry>)> {
        let mut fields = self.reader.map(node, path)?;
        let mut entries = fields.take_all();
        if entries.len() > most {
            let message = format!("{} entries, at most {most} are taken", entries.len());
            self.reader.note(fields.place(), path, message, Some(hint.to_owned()));
            return None;
        }
        entries.retain(|entry| self.reader.is_name(&entry.key, entry.quoted, entry.place, &fields.path(&entry.key)));
        Some((fields, entries))
    }

    fn anonymous(&mut self, node: &Node, sections: &mut Sections<'_>) {
        let Some(mut fields) = self.reader.map(node, "anonymous") else { return };
        if let Some(entry) = fields.take("shared") {
            sections.shared = self.reader.part_at(&entry.node, "anonymous.shared");
        }
        if let Some(entry) = fields.take("per_address") {
            sections.per_address = self.reader.part_at(&entry.node, "anonymous.per_address").map(|mut placed| {
                placed.part = Anonymous::per_address(&placed.part);
                placed
            });
        }
        self.reader.finish(&fields);
    }

    fn store(&mut self, node: &Node) -> StoreSettings {
        let mut settings = StoreSettings::default();
        if let Some(mut fields) = self.reader.map(node, "store") {
            if let Some(entry) = fields.take("on_failure") {
                settings.on_failure = self.on_failure(&entry.node, "store.on_failure").unwrap_or_default();
            }
            self.reader.finish(&fields);
        }
        settings
    }

    fn on_failure(&mut self, node: &Node, path: &str) -> Option<OnFailure> {
        self.reader.word(node, path, &OnFailure::WORDS).and_then(OnFailure::from_name)
    }
}

impl Sections<'_> {
    fn put_into(self, config: &mut Config) {
        config.defaults = self.defaults.map(|placed| placed.part).unwrap_or_default();
        for tier in self.tiers {
            let routes: BTreeMap<_, _> = tier.routes.into_iter().map(|route| (route.name.into(), route.part.part)).collect();
            config.tiers.insert(tier.name.into(), Tier { part: tier.part.part, routes });
        }
        config.routes = self.routes.into_iter().filter_map(RawRoute::compiled).collect();
        config.anonymous.shared = self.shared.map(|placed| placed.part);
        if let Some(placed) = self.per_address {
            config.anonymous.per_address = placed.part;
        }
    }
}
