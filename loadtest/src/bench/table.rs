//! The rows, and how they are printed.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use crate::report::number;

/// One line of the table: what, against what, how much of it, and how much was hoped for.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    what: String,
    against: &'static str,
    value: f64,
    /// None where there is nothing to reach, only to know.
    aim: Option<f64>,
    /// Whether more is better.
    at_least: bool,
    reached: Option<bool>,
    /// The values that it was made of, in words.
    of: String,
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, against: &'static str, at_most: Option<f64>, value: f64) -> Self {
        let reached = at_most.map(|aim| value <= aim);
        Self { what: what.into(), against, value, aim: at_most, at_least: false, reached, of: String::new() }
    }

    pub(crate) fn at_least(what: impl Into<String>, against: &'static str, aim: f64, value: f64) -> Self {
        Self { aim: Some(aim), at_least: true, reached: Some(value >= aim), ..Self::new(what, against, None, value) }
    }

    /// With what it was made of.
    pub(crate) fn of(mut self, of: String) -> Self {
        self.of = of;
        self
    }
}

pub(crate) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["what", "against", "measured", "aim", "", "medians"]);
    for row in rows {
        let sign = if row.at_least { ">=" } else { "<=" };
        let aim = row.aim.map_or_else(String::new, |aim| format!("{sign} {aim}"));
        let reached = match row.reached {
            Some(true) => "reached",
            Some(false) => "MISSED",
            None => "",
        };
        table.add_row([row.what.as_str(), row.against, &number(row.value), &aim, reached, &row.of]);
    }
    for column in table.column_iter_mut().skip(2).take(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
