//! A report for people, and for programs.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use serde_json::json;

use crate::limit::{Micros, Reason, US};
use crate::simulate::{LINES_HELD, MAX_COUNTED_USERS, Report, Tally};

/// What a reader of the report must know that is no figure in it.
pub(super) fn warnings(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let bad = &report.bad_lines;
    for line in &bad.first {
        writeln!(out, "warning: line {}: {}", line.line, line.problem)?;
    }
    if bad.count > 0 {
        let named = bad.first.len();
        let more = bad.count - u64::try_from(named).unwrap_or(0);
        let others = if more > 0 { format!(" ({more} more than the {named} named)") } else { String::new() };
        writeln!(out, "warning: {} of {} lines are bad and were left out{others}", bad.count, report.lines)?;
    }
    if report.late_lines > 0 {
        writeln!(
            out,
            "warning: {} lines came more than {LINES_HELD} lines too late and were replayed at the time reached",
            report.late_lines
        )?;
    }
    if report.overall.undecided > 0 {
        writeln!(out, "warning: {} requests are undecided (store full): raise --max-subjects", report.overall.undecided)?;
    }
    Ok(())
}

/// What is said under the figures.
fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    if report.spread {
        notes
            .push("access log: times are whole seconds of completion; requests are sorted and spread evenly within each second".to_owned());
    }
    if report.uncounted != Tally::default() {
        notes.push(format!("the first {MAX_COUNTED_USERS} users are counted one by one, all later ones together under (others)"));
    }
    notes
}

pub(super) fn json(report: &Report, top: usize) -> String {
    let (users, others, rest) = report.top(top);
    let users: Vec<_> = users.iter().map(|(user, tally)| json!({"user": user, "tally": tally})).collect();
    let report = json!({
        "lines": report.lines,
        "bad_lines": report.bad_lines,
        "late_lines": report.late_lines,
        "users": users,
        "others": {"users": others, "tally": rest},
        "overall": report.overall,
        "notes": notes(report),
    });
    format!("{report:#}")
}

pub(super) fn table(report: &Report, top: usize) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    let mut head = vec!["user", "requests", "admitted", "refused"];
    head.extend(Reason::ALL.map(Reason::name));
    head.extend(["success", "longest wait"]);
    let columns = head.len();
    table.set_header(head);
    let (users, others, rest) = report.top(top);
    let more = if report.uncounted == Tally::default() { "" } else { "more than " };
    for (user, tally) in &users {
        table.add_row(row(printable(user), tally));
    }
    if rest != Tally::default() {
        table.add_row(row(format!("(others: {more}{others} users)"), &rest));
    }
    table.add_row(row(format!("overall: {more}{} users", report.users()), &report.overall));
    for column in 1..columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut lines = vec![table.to_string()];
    if report.overall.shadowed > 0 {
        lines.push(format!("shadow mode: {} of the admitted would have been refused", report.overall.shadowed));
    }
    lines.extend(notes(report));
    lines.join("\n")
}

fn row(name: String, tally: &Tally) -> Vec<String> {
    let mut row = vec![name, tally.requests.to_string(), tally.admitted.to_string(), tally.refused().to_string()];
    row.extend(tally.reasons.iter().map(ToString::to_string));
    row.push(format!("{:.2} %", tally.success_rate() * 100.0));
    row.push(seconds(tally.longest_wait));
    row
}

fn seconds(micros: Micros) -> String {
    if micros == 0 { "-".to_owned() } else { format!("{:.3} s", micros as f64 / US as f64) }
}

/// A name that fits a table: user ids may have 256 bytes.
fn printable(name: &str) -> String {
    const MOST: usize = 40;
    if name.chars().count() <= MOST { name.to_owned() } else { name.chars().take(MOST - 1).chain(['…']).collect() }
}
