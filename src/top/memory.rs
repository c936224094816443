//! The ranking of a process that is alone.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use super::{Kind, MOST_RANKED, Ranking, minute, minutes};
use crate::identity::Subject;
use crate::limit::Micros;
use crate::store::StoreError;

type Counts = HashMap<(Kind, Subject), u64>;

/// Adds up in this process's memory.
#[derive(Debug, Default)]
pub struct MemoryRanking {
    minutes: Mutex<BTreeMap<i64, Counts>>,
}

#[async_trait]
impl Ranking for MemoryRanking {
    async fn add(&self, kind: Kind, counts: &[(Subject, u64)], now: Micros) -> Result<(), StoreError> {
        let mut kept = self.minutes.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|minute, _| minutes(now).any(|counts| counts == *minute));
        let this = kept.entry(minute(now)).or_default();
        for (subject, count) in counts {
            *this.entry((kind, subject.clone())).or_default() += count;
        }
        if this.len() > 2 * Kind::ALL.len() * MOST_RANKED {
            for kind in Kind::ALL {
                let mut counts: Vec<u64> = this.iter().filter(|((of, _), _)| *of == kind).map(|(_, count)| *count).collect();
                if counts.len() > MOST_RANKED {
                    let (_, least, _) = counts.select_nth_unstable_by_key(MOST_RANKED, |count| std::cmp::Reverse(*count));
                    let least = *least;
                    this.retain(|(of, _), count| *of != kind || *count > least);
                }
            }
        }
        Ok(())
    }

    async fn counts(&self, kind: Kind, now: Micros) -> Result<Vec<(Subject, u64)>, StoreError> {
        let kept = self.minutes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sums: HashMap<Subject, u64> = HashMap::new();
        for counts in minutes(now).filter_map(|minute| kept.get(&minute)) {
            for ((_, subject), count) in counts.iter().filter(|((of, _), _)| *of == kind) {
                *sums.entry(subject.clone()).or_default() += count;
            }
        }
        let mut sums: Vec<(Subject, u64)> = sums.into_iter().collect();
        sums.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(*count));
        Ok(sums)
    }
}
