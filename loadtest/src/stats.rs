//! What is said of many numbers. Pure.

use hdrhistogram::Histogram;

/// The longest latency that is told from a longer one, µs: ten minutes.
const LONGEST_US: u64 = 600_000_000;

/// The mean; 0 of nothing.
pub(crate) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The variance of the whole population; 0 of nothing.
pub(crate) fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    self::mean(&values.iter().map(|value| (value - mean).powi(2)).collect::<Vec<_>>())
}

/// Jain's index of fairness, 1/n … 1: 1 when all have the same, 1/n when one has everything; 1 when nobody has anything.
pub(crate) fn jain(values: &[f64]) -> f64 {
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares == 0.0 { 1.0 } else { values.iter().sum::<f64>().powi(2) / (values.len() as f64 * squares) }
}

/// The middle value, the mean of both middle ones for an even number; NaN of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.get(middle) {
        Some(upper) if sorted.len().is_multiple_of(2) => f64::midpoint(sorted[middle - 1], *upper),
        Some(value) => *value,
        None => f64::NAN,
    }
}

/// The most of `times` (sorted, µs) that lie in any stretch of `window` µs; what is exactly a window old lies outside. Whole numbers,
/// as the limiter's own: seconds as doubles would take what is just outside for inside.
pub(crate) fn most_within(times: &[i64], window: i64) -> usize {
    let mut first = 0;
    let mut most = 0;
    for (index, time) in times.iter().enumerate() {
        while first < index && time - times[first] >= window {
            first += 1;
        }
        most = most.max(index + 1 - first);
    }
    most
}

/// Latencies: a histogram with three digits, whatever their number.
#[derive(Debug, Clone)]
pub(crate) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        // These bounds are valid: 1 ≤ 1, 600 s ≥ 2 µs, three digits.
        Self(Histogram::new_with_bounds(1, LONGEST_US, 3).unwrap_or_else(|error| unreachable!("{error}")))
    }
}

impl Latencies {
    /// Notes one, s.
    pub(crate) fn add(&mut self, seconds: f64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "cut to the range, which is what is meant")]
        self.0.saturating_record((seconds * 1e6) as u64);
    }

    /// Adds all of another.
    pub(crate) fn merge(&mut self, other: &Self) {
        // The same bounds, so every value fits.
        let _ = self.0.add(&other.0);
    }

    /// What the share (0 … 1) of them did not exceed, ms.
    pub(crate) fn quantile_ms(&self, share: f64) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.value_at_quantile(share) as f64 / 1e3 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_and_variance_are_those_of_the_population() {
        assert_eq!((mean(&[]), variance(&[])), (0.0, 0.0));
        assert_eq!((mean(&[1.0, 3.0]), variance(&[1.0, 3.0])), (2.0, 1.0));
    }

    #[test]
    fn jains_index_runs_from_one_nth_to_one() {
        assert_eq!(jain(&[2.0; 10]), 1.0);
        assert_eq!(jain(&[5.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[0.0, 0.0]), 1.0);
        assert_eq!(jain(&[]), 1.0);
    }

    #[test]
    fn the_median_stands_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn what_is_a_window_old_lies_outside() {
        assert_eq!(most_within(&[0, 5, 10, 12, 14], 10), 4);
        assert_eq!(most_within(&[0, 10, 20], 10), 1);
        assert_eq!(most_within(&[], 10), 0);
    }

    #[test]
    fn quantiles_are_right_to_three_digits() {
        let mut latencies = Latencies::default();
        (1..=1_000).for_each(|ms| latencies.add(f64::from(ms) / 1e3));
        for (share, expected) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0), (1.0, 1_000.0)] {
            assert!((latencies.quantile_ms(share) / expected - 1.0).abs() < 0.002, "{share}: {}", latencies.quantile_ms(share));
        }
        let mut both = Latencies::default();
        both.merge(&latencies);
        assert_eq!(both.quantile_ms(0.5), latencies.quantile_ms(0.5));
        assert_eq!(Latencies::default().quantile_ms(0.99), 0.0);
    }
}
