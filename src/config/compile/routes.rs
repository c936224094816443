//! The section `routes`.

use super::super::model::{OnFailure, Route};
use super::super::pattern::Pattern;
use super::super::raw::{Node, Place, Placed, Value};
use super::{Compiler, MOST_ROUTES};
use crate::limit::{MAX_COST, Units};

/// More methods than HTTP has.
const MOST_METHODS: usize = 16;

/// A route as written. What is missing could not be read, and is noted.
pub(super) struct RawRoute<'a> {
    pub name: Option<&'a str>,
    pub pattern: Option<Pattern>,
    pub methods: Vec<&'a str>,
    pub cost: Units,
    pub limits: Option<Placed>,
    pub on_store_failure: Option<OnFailure>,
    pub place: Place,
    /// Where the cost stands, if it is written.
    pub cost_place: Option<Place>,
    pub path: String,
}

impl RawRoute<'_> {
    pub(super) fn compiled(self) -> Option<Route> {
        Some(Route {
            name: self.name?.into(),
            pattern: self.pattern?,
            methods: self.methods.into_iter().map(Into::into).collect(),
            cost: self.cost,
            limits: self.limits.map(|placed| placed.part),
            on_store_failure: self.on_store_failure,
        })
    }

    /// Whether every request that `other` would take is taken by this route.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let methods = self.methods.is_empty() || (!other.methods.is_empty() && other.methods.iter().all(|one| self.methods.contains(one)));
        methods && matches!((&self.pattern, &other.pattern), (Some(own), Some(others)) if own.covers(others))
    }
}

impl Compiler {
    pub(super) fn routes<'a>(&mut self, node: &'a Node) -> Vec<RawRoute<'a>> {
        let Some(nodes) = self.reader.list(node, "routes", MOST_ROUTES) else {
            return Vec::new();
        };
        let mut routes: Vec<RawRoute<'a>> = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            let Some(route) = self.route(node, &format!("routes[{index}]")) else { continue };
            if let Some(first) = routes.iter().find(|first| first.name.is_some() && first.name == route.name) {
                let message = format!("the name stands twice, first in line {}", first.place.line);
                let hint = "a route's name is part of its keys: give each its own";
                self.reader.note(route.place, &format!("{}.name", route.path), message, Some(hint.to_owned()));
            }
            routes.push(route);
        }
        routes
    }

    fn route<'a>(&mut self, node: &'a Node, path: &str) -> Option<RawRoute<'a>> {
        let mut fields = self.reader.map(node, path)?;
        let place = fields.place();
        let mut route = RawRoute {
            name: None,
            pattern: None,
            methods: Vec::new(),
            cost: 1,
            limits: None,
            on_store_failure: None,
            place,
            cost_place: None,
            path: path.to_owned(),
        };
        match fields.take("name") {
            Some(entry) => route.name = self.route_name(&entry.node, &fields.path("name")),
            None => self.missing(place, path, "name", "it stands in answers, metrics and keys"),
        }
        match fields.take("match") {
            Some(entry) => self.matching(&entry.node, &fields.path("match"), &mut route),
            None => self.missing(place, path, "match", "for example match: {path: /search}"),
        }
        if let Some(entry) = fields.take("cost") {
            route.cost_place = Some(entry.node.place);
            route.cost = self.cost(&entry.node, &fields.path("cost"));
        }
        if let Some(entry) = fields.take("limits") {
            route.limits = self.reader.part_at(&entry.node, &fields.path("limits"));
        }
        if let Some(entry) = fields.take("on_store_failure") {
            route.on_store_failure = self.on_failure(&entry.node, &fields.path("on_store_failure"));
        }
        self.reader.finish(&fields);
        Some(route)
    }

    fn missing(&mut self, place: Place, path: &str, key: &str, hint: &str) {
        self.reader.note(place, path, format!("{key} is missing"), Some(hint.to_owned()));
    }

    fn route_name<'a>(&mut self, node: &'a Node, path: &str) -> Option<&'a str> {
        let name = self.reader.text(node, path, "a name")?;
        let quoted = matches!(node.value, Value::Quoted(_));
        self.reader.is_name(name, quoted, node.place, path).then_some(name)
    }

    fn cost(&mut self, node: &Node, path: &str) -> Units {
        let most = u32::try_from(MAX_COST).unwrap_or(u32::MAX);
        if matches!(&node.value, Value::Plain(text) if text == "0") {
            let hint = "a route that costs nothing is one with limits: {mode: bypass}";
            self.reader.note(node.place, path, format!("0 is not a whole number from 1 to {most}"), Some(hint.to_owned()));
            return 1;
        }
        self.reader.whole(node, path, 1, most).map_or(1, Units::from)
    }

    fn matching<'a>(&mut self, node: &'a Node, path: &str, route: &mut RawRoute<'a>) {
        let Some(mut fields) = self.reader.map(node, path) else { return };
        if let Some(entry) = fields.take("path") {
            let path = fields.path("path");
            if let Some(text) = self.reader.text(&entry.node, &path, "a path") {
                match Pattern::new(text) {
                    Ok(pattern) => route.pattern = Some(pattern),
                    Err((message, hint)) => self.reader.note(entry.node.place, &path, message, Some(hint.to_owned())),
                }
            }
        } else {
            self.missing(fields.place(), path, "path", "for all paths write path: \"*\"");
        }
        if let Some(entry) = fields.take("methods") {
            route.methods = self.methods(&entry.node, &fields.path("methods"));
        }
        self.reader.finish(&fields);
    }

    fn methods<'a>(&mut self, node: &'a Node, path: &str) -> Vec<&'a str> {
        let Some(nodes) = self.reader.list(node, path, MOST_METHODS) else {
            return Vec::new();
        };
        if nodes.is_empty() {
            self.reader.note(node.place, path, "no methods, so that nothing matches", Some("for all methods leave the key out".to_owned()));
        }
        let mut methods = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let Some(text) = self.reader.text(node, &path, "a method") else { continue };
            let fits = (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
            if !fits {
                let upper = text.to_ascii_uppercase();
                let plain = text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
                let hint = if plain { format!("did you mean {upper}?") } else { "methods are words in capitals, like GET".to_owned() };
                let shown: String = text.chars().take(60).collect();
                self.reader.note(node.place, &path, format!("{shown:?} is not a method"), Some(hint));
            } else if methods.contains(&text) {
                self.reader.note(node.place, &path, format!("{text} stands twice"), Some("keep one of them".to_owned()));
            } else {
                methods.push(text);
            }
        }
        methods
    }
}
