//! Who comes most often, in bounded memory.
//!
//! The counters of Misra and Gries (1982), lowered many at a time as Anderson and others do (2017): up to twice `size` counters are
//! kept; when there are more, the value in the middle is taken off all, and those left with nothing go. So adding is cheap on
//! average, and a count is never too high, and too low by at most a `size`-th of everything added.

use std::collections::HashMap;
use std::hash::Hash;

/// Counts the most frequent of many.
#[derive(Debug)]
pub struct Sketch<K> {
    size: usize,
    counts: HashMap<K, u64>,
}

impl<K: Hash + Eq + Clone> Sketch<K> {
    /// A sketch whose counts are too low by at most a `size`-th of everything added.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self { size: size.max(1), counts: HashMap::new() }
    }

    /// Counts one more of `key`.
    pub fn add(&mut self, key: &K) {
        if let Some(count) = self.counts.get_mut(key) {
            *count += 1;
            return;
        }
        self.counts.insert(key.clone(), 1);
        if self.counts.len() > 2 * self.size {
            self.lower();
        }
    }

    fn lower(&mut self) {
        let mut counts: Vec<u64> = self.counts.values().copied().collect();
        let (_, by, _) = counts.select_nth_unstable(self.size);
        let by = *by;
        self.counts.retain(|_, count| {
            *count = count.saturating_sub(by);
            *count > 0
        });
    }

    /// The `most` highest counts, highest first; nothing is counted any more.
    pub fn take(&mut self, most: usize) -> Vec<(K, u64)> {
        let mut counts: Vec<(K, u64)> = self.counts.drain().collect();
        counts.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts.truncate(most);
        counts
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The bound that is promised, whatever comes in whatever order.
        #[test]
        fn a_count_is_never_too_high_and_too_low_by_at_most_a_share(size in 1_usize..20, keys in prop::collection::vec(0_u32..60, 0..2_000)) {
            let mut sketch = Sketch::new(size);
            let mut exact: HashMap<u32, u64> = HashMap::new();
            for key in &keys {
                sketch.add(key);
                *exact.entry(*key).or_default() += 1;
                prop_assert!(sketch.counts.len() <= 2 * size, "more counters than promised");
            }
            let slack = keys.len() as u64 / size as u64;
            for (key, exact) in exact {
                let counted = sketch.counts.get(&key).copied().unwrap_or(0);
                prop_assert!(counted <= exact && exact <= counted + slack, "{key}: {counted} of {exact}, slack {slack}");
            }
        }
    }

    #[test]
    fn what_is_taken_is_sorted_and_gone() {
        let mut sketch = Sketch::new(8);
        for key in [1, 2, 2, 3, 3, 3] {
            sketch.add(&key);
        }
        assert_eq!(sketch.take(2), [(3, 3), (2, 2)]);
        assert_eq!(sketch.take(2), []);
    }
}
