//! What only the whole can show: whether the layers fit together, whether names are known, whether a route can be reached.

use super::super::raw::{Place, Placed, closest};
use super::routes::RawRoute;
use super::{Compiler, Sections};
use crate::limit::{Field, Part, Policy, Problem, Reason, State, Units, decide};

/// Layers, weakest first.
type Stack<'a> = Vec<&'a Placed>;

impl Compiler {
    /// Puts together every combination that the file alone can make.
    pub(super) fn check_layers(&mut self, sections: &Sections<'_>) {
        let base: Stack<'_> = sections.defaults.iter().collect();
        self.check_together(&base, &[], None);
        let anonymous: Vec<&Placed> = sections.shared.iter().chain(&sections.per_address).collect();
        for layer in anonymous.iter().copied().chain(sections.tiers.iter().map(|tier| &tier.part)) {
            self.check_together(&over(&base, layer), &[&base], None);
        }
        for (route, limits) in sections.routes.iter().filter_map(|route| Some((route, route.limits.as_ref()?))) {
            let default = over(&base, limits);
            self.check_together(&default, &[&base], None);
            self.check_cost(route, &default);
            for layer in &anonymous {
                let general = over(&base, layer);
                self.check_together(&over(&general, limits), &[&general, &default], Some("anonymous users"));
            }
            for tier in &sections.tiers {
                let general = over(&base, &tier.part);
                let mut layers = over(&general, limits);
                layers.extend(tier.routes.iter().filter(|part| Some(part.name) == route.name).map(|part| &part.part));
                self.check_together(&layers, &[&general, &default], Some(&format!("users of tier {}", tier.name)));
            }
        }
        for route in sections.routes.iter().filter(|route| route.limits.is_none()) {
            self.check_cost(route, &base);
        }
    }

    /// Notes what is wrong with `layers`, or worth a word, and is not already wrong with one of the stacks `noted`.
    fn check_together(&mut self, layers: &[&Placed], noted: &[&Stack<'_>], whom: Option<&str>) {
        let Some((last, below)) = layers.split_last() else { return };
        if !layers.iter().all(|layer| layer.sound) {
            return;
        }
        let whom = whom.map(|whom| format!(" (for {whom})")).unwrap_or_default();
        let noted: Vec<_> = noted.iter().map(|stack| policy(stack, None)).collect();
        match policy(layers, None) {
            Ok(policy) => {
                let old: Vec<_> = noted.iter().flatten().flat_map(Policy::warnings).collect();
                for warning in policy.warnings().iter().filter(|warning| !old.contains(warning)) {
                    self.warnings.push(last.place.mistake(&last.path, format!("{warning}{whom}")));
                }
            }
            Err(problems) => {
                let old: Vec<Field> =
                    noted.iter().filter_map(|noted| noted.as_ref().err()).flatten().map(|problem| problem.field).collect();
                for problem in problems.into_iter().filter(|problem| !old.contains(&problem.field)) {
                    let (place, culprit) = blame(below, last, problem.field);
                    let subject = if culprit == problem.field { String::new() } else { format!("{} ", problem.field) };
                    let message = format!("{subject}{} is not {}{whom}", problem.value, problem.expected);
                    self.reader.note(place, &format!("{}.{culprit}", last.path), message, problem.hint);
                }
            }
        }
    }

    /// A cost that the default user can never pay.
    fn check_cost(&mut self, route: &RawRoute<'_>, layers: &[&Placed]) {
        let (Some(place), true, Ok(policy)) = (route.cost_place, layers.iter().all(|layer| layer.sound), policy(layers, None)) else {
            return;
        };
        if never_fits(&policy, route.cost) {
            let message = format!("a request that costs {} can never be admitted: it is above the limits of its route", route.cost);
            self.warnings.push(place.mistake(&format!("{}.cost", route.path), message));
        }
    }

    /// A tier can say something only for routes that are there and have limits of their own.
    pub(super) fn check_tier_routes(&mut self, sections: &Sections<'_>) {
        let names: Vec<&str> = sections.routes.iter().filter_map(|route| route.name).collect();
        for part in sections.tiers.iter().flat_map(|tier| &tier.routes) {
            match sections.routes.iter().find(|route| route.name == Some(part.name)) {
                None => {
                    let slip = closest(part.name, &names).map(|name| format!("did you mean {name}?"));
                    let hint = slip.unwrap_or_else(|| "name it in an entry of routes first".to_owned());
                    self.reader.note(part.place, &part.path, "no route has this name", Some(hint));
                }
                Some(route) if route.limits.is_none() => {
                    let hint = format!("give the route limits of its own (limits: {{}} inherits all) at line {}", route.place.line);
                    self.reader.note(
                        part.place,
                        &part.path,
                        "the route has no limits of its own, so these would apply to nothing",
                        Some(hint),
                    );
                }
                Some(_) => {}
            }
        }
    }

    /// A route behind one that takes all of its requests.
    pub(super) fn check_shadowed(&mut self, routes: &[RawRoute<'_>]) {
        for (index, route) in routes.iter().enumerate() {
            if let Some(first) = routes[..index].iter().find(|first| first.covers(route)) {
                let name = first.name.unwrap_or("before it");
                let message = format!("never reached: the route {name} in line {} takes all of its requests", first.place.line);
                self.warnings.push(route.place.mistake(&route.path, message));
            }
        }
    }
}

fn over<'a>(below: &[&'a Placed], layer: &'a Placed) -> Stack<'a> {
    below.iter().copied().chain([layer]).collect()
}

fn policy(below: &[&Placed], last: Option<&Part>) -> Result<Policy, Vec<Problem>> {
    let mut merged = Part::default();
    for part in below.iter().map(|layer| &layer.part).chain(last) {
        merged.lay_over(part);
    }
    Policy::compile(&merged)
}

/// The value of `last` without which there would be no problem with `field`, and its place.
fn blame(below: &[&Placed], last: &Placed, field: Field) -> (Place, Field) {
    let cures = |candidate: &Field| {
        let mut without = last.part.clone();
        without.unset(*candidate);
        last.part.get(*candidate).is_some()
            && !policy(below, Some(&without)).is_err_and(|left| left.iter().any(|problem| problem.field == field))
    };
    let culprit = [field].into_iter().chain(Field::ALL).find(cures).unwrap_or(field);
    (last.place_of(culprit), culprit)
}

/// Whether the decision itself says that this cost can never be paid.
fn never_fits(policy: &Policy, cost: Units) -> bool {
    decide(policy, &mut State::default(), 0, cost).reason == Some(Reason::CostExceedsLimit)
}
