//! What a run found: medians over its rounds, and what of it was hoped for.

use serde::Serialize;

use crate::scenario::{Expect, Scenario};
use crate::stats::median;
use crate::tally::{Figures, Point, Tally};

/// What one round found about one group of a variant.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Measured {
    pub group: String,
    pub figures: Figures,
    /// The success rate of each user, lowest first.
    pub success_rates: Vec<f64>,
    /// (share of the answers, ms that they did not exceed).
    pub curve: Vec<(f64, f64)>,
    pub points: Vec<Point>,
}

impl Measured {
    pub(crate) fn new(group: &str, figures: Figures, tally: &Tally) -> Self {
        Self { group: group.to_owned(), figures, success_rates: tally.success_rates(), curve: tally.curve(), points: tally.points() }
    }
}

/// One variant, once.
pub(crate) struct Round {
    pub variant: String,
    pub groups: Vec<Measured>,
}

/// A variant: figures are medians over the rounds, lines are those of the last one.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub variant: String,
    pub groups: Vec<Measured>,
}

/// Something that was hoped for, and what came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Expectation {
    pub figure: String,
    pub variant: String,
    pub group: String,
    pub against: Option<String>,
    pub at_most: Option<f64>,
    pub at_least: Option<f64>,
    /// None when it was not measured.
    pub value: Option<f64>,
    pub reached: bool,
}

/// A scenario and its results.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub scenario: String,
    pub question: String,
    pub rounds: u32,
    pub cores: usize,
    pub variants: Vec<Summary>,
    pub expectations: Vec<Expectation>,
}

impl Outcome {
    pub(crate) fn new(scenario: &Scenario, rounds: &[Round]) -> Self {
        let of = |name: &str| rounds.iter().filter(|round| round.variant == name).collect::<Vec<_>>();
        let variants: Vec<Summary> = scenario
            .variants
            .iter()
            .filter_map(|variant| Some(Summary { variant: variant.name.clone(), groups: medians(&of(&variant.name))? }))
            .collect();
        let expectations = scenario.expect.iter().map(|expect| hold(expect, rounds)).collect();
        Self {
            scenario: scenario.name.clone(),
            question: scenario.question.clone(),
            rounds: scenario.rounds,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            variants,
            expectations,
        }
    }
}

fn medians(rounds: &[&Round]) -> Option<Vec<Measured>> {
    let last = rounds.last()?;
    let group = |(number, measured): (usize, &Measured)| {
        let values =
            |name: &String| rounds.iter().filter_map(|round| round.groups.get(number)?.figures.get(name).copied()).collect::<Vec<_>>();
        let figures = measured.figures.keys().map(|name| (name.clone(), median(&values(name)))).collect();
        Measured { figures, ..measured.clone() }
    };
    Some(last.groups.iter().enumerate().map(group).collect())
}

/// The values of one figure, round by round.
fn values(rounds: &[Round], variant: &str, group: &str, figure: &str) -> Vec<f64> {
    let of = |round: &Round| round.groups.iter().find(|measured| measured.group == group)?.figures.get(figure).copied();
    rounds.iter().filter(|round| round.variant == variant).filter_map(of).collect()
}

/// Ratios are made within each round, so that a machine that was slower in one of them was slower for both.
fn hold(expect: &Expect, rounds: &[Round]) -> Expectation {
    let mut found = values(rounds, &expect.variant, &expect.group, &expect.figure);
    if let Some(against) = &expect.against {
        let floor = values(rounds, against, &expect.group, &expect.figure);
        found = found.iter().zip(floor).map(|(value, floor)| value / floor).collect();
    }
    let value = Some(median(&found)).filter(|value| value.is_finite());
    let reached =
        value.is_some_and(|value| expect.at_most.is_none_or(|most| value <= most) && expect.at_least.is_none_or(|least| value >= least));
    Expectation {
        figure: expect.figure.clone(),
        variant: expect.variant.clone(),
        group: expect.group.clone(),
        against: expect.against.clone(),
        at_most: expect.at_most,
        at_least: expect.at_least,
        value,
        reached,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(variant: &str, value: f64) -> Round {
        let figures = Figures::from([("f".to_owned(), value)]);
        let measured = Measured { group: "all".to_owned(), figures, success_rates: vec![], curve: vec![], points: vec![] };
        Round { variant: variant.to_owned(), groups: vec![measured] }
    }

    fn expect(against: Option<&str>, at_most: f64) -> Expect {
        Expect {
            figure: "f".to_owned(),
            variant: "a".to_owned(),
            group: "all".to_owned(),
            against: against.map(str::to_owned),
            at_most: Some(at_most),
            at_least: None,
        }
    }

    #[test]
    fn a_ratio_is_the_median_of_the_ratios_of_each_round() {
        // The second round was ten times slower for both.
        let rounds = [round("a", 2.0), round("b", 1.0), round("a", 20.0), round("b", 10.0), round("a", 3.0), round("b", 1.0)];
        let held = hold(&expect(Some("b"), 2.0), &rounds);
        assert_eq!((held.value, held.reached), (Some(2.0), true));
        assert!(!hold(&expect(None, 2.0), &rounds).reached);
    }

    #[test]
    fn what_was_not_measured_is_not_reached() {
        let held = hold(&expect(Some("c"), 9.0), &[round("a", 1.0)]);
        assert_eq!((held.value, held.reached), (None, false));
    }

    #[test]
    fn figures_are_medians_over_the_rounds() {
        let rounds = [round("a", 1.0), round("a", 9.0), round("a", 2.0)];
        let groups = medians(&rounds.iter().collect::<Vec<_>>()).expect("rounds");
        assert_eq!(groups[0].figures["f"], 2.0);
    }
}
