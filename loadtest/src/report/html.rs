//! One page that needs no other file and asks nobody for anything.

use std::fmt::Write as _;

use super::plot::{Line, lines};
use super::{number, sentence};
use crate::Failure;
use crate::result::{Measured, Outcome};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem;color:#222}\
table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}td,th{padding:.2rem .6rem;border-bottom:1px solid #ddd;text-align:right}\
td:first-child,th:first-child{text-align:left}.no{color:#b00}.yes{color:#060}svg{max-width:100%;height:auto;margin:.5rem 0}";

/// The report of all scenarios of a run.
pub(crate) fn html(outcomes: &[Outcome]) -> Result<String, Failure> {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Weir: load tests</title><style>{STYLE}</style></head>\n<body><h1>Weir: load tests</h1>\n"
    );
    for outcome in outcomes {
        scenario(&mut page, outcome)?;
    }
    page.push_str("</body></html>\n");
    Ok(page)
}

fn scenario(page: &mut String, outcome: &Outcome) -> Result<(), Failure> {
    let (name, question) = (escaped(&outcome.scenario), escaped(&outcome.question));
    let (rounds, cores) = (outcome.rounds, outcome.cores);
    writeln!(
        page,
        "<h2>{name}</h2><p><b>{question}</b> Medians of {rounds} rounds on {cores} cores; lines are those of the last round.</p>"
    )?;
    page.push_str("<ul>");
    for expectation in &outcome.expectations {
        let class = if expectation.reached { "yes" } else { "no" };
        writeln!(page, "<li class=\"{class}\">{}</li>", escaped(&sentence(expectation)))?;
    }
    page.push_str("</ul>\n");
    for chart in charts(outcome)? {
        page.push_str(&chart);
    }
    figures(page, outcome)
}

/// A table: a row for each figure, a column for each group of each variant.
fn figures(page: &mut String, outcome: &Outcome) -> Result<(), Failure> {
    let columns: Vec<(&str, &Measured)> = outcome
        .variants
        .iter()
        .flat_map(|summary| {
            let several = summary.groups.len() > 2;
            summary.groups.iter().filter(move |group| several || group.group == "all").map(|group| (summary.variant.as_str(), group))
        })
        .collect();
    let mut names: Vec<&String> = columns.iter().flat_map(|(_, group)| group.figures.keys()).collect();
    names.sort();
    names.dedup();
    page.push_str("<details open><summary>All figures</summary><table><tr><th></th>");
    for (variant, group) in &columns {
        write!(page, "<th>{}<br>{}</th>", escaped(variant), escaped(&group.group))?;
    }
    page.push_str("</tr>\n");
    for name in names {
        write!(page, "<tr><td>{}</td>", escaped(name))?;
        for (_, group) in &columns {
            write!(page, "<td>{}</td>", group.figures.get(name).map_or_else(String::new, |value| number(*value)))?;
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></details>\n");
    Ok(())
}

fn charts(outcome: &Outcome) -> Result<Vec<String>, Failure> {
    let all = |line: fn(&Measured) -> Vec<(f64, f64)>| -> Vec<Line> {
        let of = |summary: &crate::result::Summary| summary.groups.iter().find(|group| group.group == "all").map(line);
        outcome.variants.iter().filter_map(|summary| Some((summary.variant.clone(), of(summary)?))).collect()
    };
    let ranked = all(|group| group.success_rates.iter().enumerate().map(|(rank, rate)| (rank as f64, *rate)).collect());
    // The tail is what matters: the axis counts nines (1 is 90 %, 2 is 99 %, …).
    let tail = all(|group| {
        let nines = |share: f64| -(1.0 - share.min(0.9999)).log10();
        group.curve.iter().filter(|(_, ms)| *ms > 0.0).map(|(share, ms)| (nines(*share), ms.log10())).collect()
    });
    let over_time = |pick: fn(&crate::tally::Point) -> f64| -> Vec<Line> {
        let line = |group: &Measured| group.points.iter().map(|point| (point.at_seconds, pick(point))).collect();
        let of = |summary: &crate::result::Summary| summary.groups.iter().find(|group| group.group == "all").map(line);
        outcome.variants.iter().filter_map(|summary| Some((summary.variant.clone(), of(summary)?))).collect()
    };
    let drawn = [
        lines("Success rate of each user, lowest first", "user", "share", &ranked)?,
        lines("Latency of the answer", "nines (1: 90 %, 2: 99 %, 3: 99.9 %)", "log10 of ms", &tail)?,
        lines("Answers", "s", "per second", &over_time(|point| point.answers_per_second))?,
        lines("Refused", "s", "per second", &some(over_time(|point| point.refused_per_second)))?,
        lines("Answered without the store", "s", "per second", &some(over_time(|point| point.degraded_per_second)))?,
        lines("Slowest answer", "s", "ms", &over_time(|point| point.worst_ms))?,
    ];
    Ok(drawn.into_iter().flatten().collect())
}

/// The lines that are not flat on the ground.
fn some(mut lines: Vec<Line>) -> Vec<Line> {
    lines.retain(|(_, points)| points.iter().any(|(_, value)| *value > 0.0));
    lines
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn names_cannot_break_the_page() {
        assert_eq!(escaped("<script>&\""), "&lt;script&gt;&amp;&quot;");
    }
}
