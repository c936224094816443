//! Results for people: a table for the terminal, a page with plots for everybody else.

mod html;
mod plot;

use std::fmt::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

pub(crate) use html::html;

use crate::result::{Expectation, Outcome};

/// Columns of the table; those that would hold nothing but zeros are left out.
const COLUMNS: [(&str, &str); 18] = [
    ("requests", "requests"),
    ("success", "success_share"),
    ("first try", "first_try_share"),
    ("least", "success_min"),
    ("variance", "success_variance"),
    ("Jain", "jain"),
    ("refused: bucket", "refused_bucket"),
    ("window", "refused_window"),
    ("degraded", "degraded"),
    ("failed", "failed"),
    ("bursts whole", "bursts_whole"),
    ("most in W", "most_in_a_window"),
    ("p50 ms", "answer_p50_ms"),
    ("p99 ms", "answer_p99_ms"),
    ("in all p99 ms", "in_all_p99_ms"),
    ("answers/s", "answers_per_second"),
    ("server CPU x bare", "server_cpu_x_bare"),
    ("Redis CPU x plain", "redis_cpu_x_plain"),
];

/// The figures of a scenario as text.
pub(crate) fn table(outcome: &Outcome) -> String {
    let mut text = format!("{}: {} ({} rounds, {} cores)\n", outcome.scenario, outcome.question, outcome.rounds, outcome.cores);
    let measured = || outcome.variants.iter().flat_map(|summary| &summary.groups);
    let worth_it = |figure: &str| measured().any(|group| group.figures.get(figure).is_some_and(|value| *value > 0.0));
    let columns: Vec<_> = COLUMNS.iter().filter(|(_, figure)| worth_it(figure)).collect();
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["variant", "group"].into_iter().chain(columns.iter().map(|(title, _)| *title)));
    for summary in &outcome.variants {
        // Where there is one group only, all is the same.
        for group in summary.groups.iter().filter(|group| summary.groups.len() > 2 || group.group == "all") {
            let cells = columns.iter().map(|(_, figure)| group.figures.get(*figure).map_or_else(String::new, |value| number(*value)));
            table.add_row([summary.variant.clone(), group.group.clone()].into_iter().chain(cells));
        }
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let _ = writeln!(text, "{table}");
    for expectation in &outcome.expectations {
        let _ = writeln!(text, "{}", sentence(expectation));
    }
    text
}

/// Whether something that was hoped for was reached.
fn sentence(expectation: &Expectation) -> String {
    let Expectation { figure, variant, group, against, at_most, at_least, value, reached } = expectation;
    let what = against.as_ref().map_or_else(|| variant.clone(), |against| format!("{variant} / {against}"));
    let aim = match (at_most, at_least) {
        (Some(most), _) => format!("<= {most}"),
        (_, Some(least)) => format!(">= {least}"),
        _ => String::new(),
    };
    let value = value.map_or_else(|| "not measured".to_owned(), number);
    format!("{} {figure} of {what}, {group}: {value} ({aim})", if *reached { "reached" } else { "MISSED " })
}

/// A number with about four digits.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_as_long_as_they_are_exact() {
        assert_eq!([0.0, 3.0, 0.5, 12_345.6, 0.000_04].map(number), ["0", "3", "0.500", "12346", "4.0e-5"]);
    }
}
