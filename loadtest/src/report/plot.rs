//! Lines on paper: SVG text that stands in the page.

use plotters::prelude::*;

use crate::Failure;

const SIZE: (u32, u32) = (720, 320);
/// Told apart also by those who see no red or no green (Okabe and Ito).
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(120, 120, 120),
];

/// A line with its name.
pub(super) type Line = (String, Vec<(f64, f64)>);

/// The lines in one chart; none when there is nothing to see.
pub(super) fn lines(title: &str, x: &str, y: &str, lines: &[Line]) -> Result<Option<String>, Failure> {
    let points = || lines.iter().flat_map(|(_, points)| points.iter());
    let Some(first) = points().next() else { return Ok(None) };
    let bound = |pick: fn(&(f64, f64)) -> f64| {
        points().map(pick).fold((pick(first), pick(first)), |(least, most), value| (least.min(value), most.max(value)))
    };
    let ((left, right), (bottom, top)) = (bound(|point| point.0), bound(|point| point.1));
    if right <= left {
        return Ok(None);
    }
    // From nothing, unless all of it lies so high that nothing could be told apart.
    let bottom = if bottom > 0.8 * top && top - bottom > 0.0 { bottom - (top - bottom) * 0.1 } else { bottom.min(0.0) };
    let top = if top > bottom { top + (top - bottom) * 0.05 } else { bottom + 1.0 };
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(64)
            .build_cartesian_2d(left..right, bottom..top)?;
        chart.configure_mesh().x_desc(x).y_desc(y).light_line_style(WHITE).draw()?;
        for (number, (name, points)) in lines.iter().enumerate() {
            let color = COLORS[number % COLORS.len()];
            chart
                .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?
                .label(name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], color.stroke_width(2)));
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.2)).draw()?;
        area.present()?;
    }
    Ok(Some(svg))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_extent_is_not_drawn() {
        assert!(lines("t", "x", "y", &[]).expect("no failure").is_none());
        assert!(lines("t", "x", "y", &[("a".to_owned(), vec![(1.0, 1.0)])]).expect("no failure").is_none());
        let flat = lines("t", "x", "y", &[("a".to_owned(), vec![(1.0, 0.0), (2.0, 0.0)])]).expect("no failure");
        assert!(flat.is_some_and(|svg| svg.starts_with("<svg")));
    }
}
