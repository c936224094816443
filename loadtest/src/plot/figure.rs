//! A graph: a row for each run with what was offered and what was admitted, and below, if there is a window, how much lay in it.

use plotters::coord::Shift;
use plotters::coord::combinators::WithKeyPoints;
use plotters::coord::types::{RangedCoordu32, RangedCoordusize};
use plotters::prelude::*;

use super::{Failure, Run, Second};

const WIDTH: u32 = 900;
const ROW: u32 = 150;
const TITLE: u32 = 40;
/// More steps than this nobody can tell apart on the width: longer runs are drawn in coarser ones.
const MOST_STEPS: usize = 600;

const OFFERED: RGBColor = RGBColor(205, 209, 216);
const STORM: RGBColor = RGBColor(252, 228, 214);
/// One for each run.
const RUNS: [RGBColor; 4] = [RGBColor(31, 111, 180), RGBColor(216, 110, 20), RGBColor(34, 139, 87), RGBColor(130, 70, 160)];

pub(super) struct Figure<'a> {
    pub(super) title: &'a str,
    pub(super) runs: &'a [Run],
    /// Length in seconds, and limit.
    pub(super) window: Option<(usize, u32)>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Figure<'_> {
    /// The graph.
    pub(super) fn svg(&self) -> Result<String, Failure> {
        let mut svg = String::new();
        let rows = u32::try_from(self.runs.len() + usize::from(self.window.is_some()))?;
        {
            let root = SVGBackend::with_string(&mut svg, (WIDTH, TITLE + rows * ROW)).into_drawing_area();
            root.fill(&WHITE)?;
            let (head, body) = root.split_vertically(TITLE);
            head.draw(&Text::new(self.title, (14, 14), ("sans-serif", 17)))?;
            let rows = body.split_evenly((usize::try_from(rows)?, 1));
            for (index, (run, row)) in self.runs.iter().zip(&rows).enumerate() {
                run.draw(row, RUNS[index % RUNS.len()])?;
            }
            if let (Some((seconds, limit)), Some(row)) = (self.window, rows.last()) {
                self.draw_window(row, seconds, limit)?;
            }
            root.present()?;
        }
        // Plotters leaves blanks at line ends and none at the end of the file.
        Ok(svg.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n")
    }

    /// What was admitted within the last `seconds`, at each second.
    fn draw_window(&self, row: &Area<'_>, seconds: usize, limit: u32) -> Result<(), Failure> {
        let sums: Vec<Vec<u32>> = self
            .runs
            .iter()
            .map(|run| {
                (0..run.seconds.len())
                    .map(|at| run.seconds[(at + 1).saturating_sub(seconds)..=at].iter().map(|s| s.admitted).sum())
                    .collect()
            })
            .collect();
        let most = sums.iter().flatten().copied().max().unwrap_or(0).max(limit);
        let span = self.runs.iter().map(|run| run.seconds.len()).max().unwrap_or(1);
        let mut chart = ChartBuilder::on(row)
            .caption(
                format!("admitted within the last {seconds} seconds, in the colours above (dashes: window_limit {limit})"),
                ("sans-serif", 14),
            )
            .margin_right(14)
            .x_label_area_size(24)
            .y_label_area_size(46)
            .build_cartesian_2d(seconds_axis(span), 0..most + most / 6)?;
        mesh(&mut chart)?;
        chart.draw_series(DashedLineSeries::new([(0, limit), (span, limit)], 5, 4, BLACK.into()))?;
        for (index, sums) in sums.iter().enumerate() {
            // The later the thinner: where lines lie upon one another each can be seen.
            let width = 2 * u32::try_from(self.runs.len() - index)?;
            chart.draw_series(LineSeries::new(sums.iter().copied().enumerate(), RUNS[index % RUNS.len()].stroke_width(width)))?;
        }
        Ok(())
    }
}

impl Run {
    fn draw(&self, row: &Area<'_>, colour: RGBColor) -> Result<(), Failure> {
        let step = self.seconds.len().div_ceil(MOST_STEPS).max(1);
        let steps: Vec<Second> = self.seconds.chunks(step).map(sum).collect();
        let (offered, admitted) = (steps.iter().map(|s| s.offered), steps.iter().map(|s| s.admitted));
        let top = offered.clone().max().unwrap_or(0).max(1);
        let (asked, let_in): (u32, u32) = (offered.clone().sum(), admitted.clone().sum());
        let unit = if step == 1 { "second".to_owned() } else { format!("{step} seconds") };
        let shaded = if steps.iter().any(|s| s.storm) { "; shaded: breaker open" } else { "" };
        let caption = format!("{}: {let_in} of {asked} admitted (by the {unit}; grey: refused{shaded})", self.name);
        // The scale is that of an ordinary second: one burst would flatten all others, and is cut at the top.
        let shown = usual(&steps).min(top);
        let most = shown + shown / 8 + 1;
        let mut chart = ChartBuilder::on(row)
            .caption(caption, ("sans-serif", 14))
            .margin_right(14)
            .x_label_area_size(24)
            .y_label_area_size(46)
            .build_cartesian_2d(seconds_axis(steps.len() * step), 0..most)?;
        mesh(&mut chart)?;
        let heights: [(Vec<u32>, RGBColor); 3] = [
            (steps.iter().map(|s| if s.storm { most } else { 0 }).collect(), STORM),
            (offered.collect(), OFFERED),
            (admitted.collect(), colour),
        ];
        for (heights, colour) in heights {
            chart.draw_series(AreaSeries::new(stairs(&heights, step, most), 0, colour))?;
        }
        Ok(())
    }
}

type Seconds = WithKeyPoints<RangedCoordusize>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Seconds, RangedCoordu32>>;

/// From the first second to `span`, with at most a dozen labels where a person would set them.
fn seconds_axis(span: usize) -> Seconds {
    let distance = [1, 10, 30, 60, 300, 600, 1_800, 3_600, 21_600, 86_400].into_iter().find(|distance| span / distance <= 12);
    (0..span).with_key_points((0..=span).step_by(distance.unwrap_or(7 * 86_400)).collect())
}

fn mesh(chart: &mut Chart<'_, '_>) -> Result<(), Failure> {
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(13)
        .y_labels(4)
        .x_label_formatter(&|second| match second / 3_600 {
            0 => format!("{}:{:02}", second / 60, second % 60),
            hours => format!("{hours}:{:02}:{:02}", second / 60 % 60, second % 60),
        })
        .draw()?;
    Ok(())
}

/// The corners of steps of `width`, cut at `most`, where the height changes.
fn stairs(heights: &[u32], width: usize, most: u32) -> Vec<(usize, u32)> {
    let mut corners = Vec::new();
    let mut before = 0;
    for (at, height) in heights.iter().map(|height| *height.min(&most)).enumerate() {
        if height != before {
            corners.extend([(at * width, before), (at * width, height)]);
            before = height;
        }
    }
    corners.extend([(heights.len() * width, before), (heights.len() * width, 0)]);
    corners
}

/// Half again what is offered in all but one in fifty steps.
fn usual(steps: &[Second]) -> u32 {
    let mut heights: Vec<u32> = steps.iter().map(|s| s.offered).collect();
    heights.sort_unstable();
    heights.get(heights.len() * 49 / 50).map_or(1, |height| height * 3 / 2).max(1)
}

fn sum(seconds: &[Second]) -> Second {
    seconds.iter().fold(Second::default(), |sum, s| Second {
        offered: sum.offered + s.offered,
        admitted: sum.admitted + s.admitted,
        storm: sum.storm || s.storm,
    })
}
