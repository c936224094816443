//! When a change counts. Pure: times and what was seen are arguments.

use std::time::Duration;

use super::places::Stamp;

/// What a look found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// A file.
    Content {
        /// SHA-256 of its bytes.
        hash: String,
        /// Which file, and when it was last written.
        stamp: Stamp,
    },
    /// None, or not one that can be read: why.
    Unreadable(String),
}

/// What a look leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing new, or not settled yet.
    Nothing,
    /// What was seen has settled: try it, and say how it went.
    Take,
    /// What is in force, and somebody wants to hear so.
    Unchanged,
}

/// What is in force, what failed, and what is on its way.
#[derive(Debug)]
pub(super) struct Settling {
    in_force: String,
    failed: Option<String>,
    /// What was last seen that is neither, and since when.
    moving: Option<(Seen, Duration)>,
    asked: bool,
    settle: Duration,
}

impl Seen {
    /// Two looks with the same identity would be reported alike.
    fn identity(&self) -> &str {
        match self {
            Self::Content { hash, .. } => hash,
            Self::Unreadable(why) => why,
        }
    }
}

impl Settling {
    pub(super) const fn new(in_force: String, settle: Duration) -> Self {
        Self { in_force, failed: None, moving: None, asked: false, settle }
    }

    /// Whether something is on its way, so that the next look is due soon.
    pub(super) const fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    /// A look at the time `now`, on any monotonic scale. With `asked` somebody wants to hear what comes of it.
    pub(super) fn observe(&mut self, now: Duration, seen: Seen, asked: bool) -> Step {
        self.asked |= asked;
        if matches!(&seen, Seen::Content { hash, .. } if *hash == self.in_force) {
            self.moving = None;
            let wanted = std::mem::take(&mut self.asked) || self.failed.is_some();
            self.failed = None;
            return if wanted { Step::Unchanged } else { Step::Nothing };
        }
        if self.failed.as_deref() == Some(seen.identity()) && !self.asked {
            self.moving = None;
            return Step::Nothing;
        }
        match &self.moving {
            Some((last, since)) if *last == seen => {
                if now.saturating_sub(*since) >= self.settle {
                    return Step::Take;
                }
            }
            _ => self.moving = Some((seen, now)),
        }
        Step::Nothing
    }

    /// What was to be taken is in force.
    pub(super) fn applied(&mut self, hash: String) {
        self.in_force = hash;
        self.failed = None;
        self.moving = None;
        self.asked = false;
    }

    /// What was to be taken cannot be.
    pub(super) fn failed(&mut self) {
        self.failed = self.moving.take().map(|(seen, _)| seen.identity().to_owned());
        self.asked = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_millis(700);

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn file(hash: &str) -> Seen {
        Seen::Content { hash: hash.to_owned(), stamp: Stamp::default() }
    }

    fn missing() -> Seen {
        Seen::Unreadable("missing".to_owned())
    }

    /// A settling with `old` in force, and what each look in turn leads to; what is taken is applied unless it is `bad`.
    #[track_caller]
    fn check(looks: &[(u64, Seen, Step)]) {
        let mut settling = Settling::new("old".to_owned(), SETTLE);
        for (ms, seen, expected) in looks {
            let step = settling.observe(at(*ms), seen.clone(), false);
            assert_eq!(step, *expected, "{seen:?} at {ms} ms");
            match seen {
                Seen::Content { hash, .. } if step == Step::Take && hash != "bad" => settling.applied(hash.clone()),
                _ if step == Step::Take => settling.failed(),
                _ => {}
            }
        }
    }

    #[test]
    fn a_change_counts_once_when_it_has_settled() {
        check(&[
            (0, file("old"), Step::Nothing),
            (100, file("new"), Step::Nothing),
            (700, file("new"), Step::Nothing),
            (800, file("new"), Step::Take),
            (900, file("new"), Step::Nothing),
        ]);
    }

    #[test]
    fn half_a_file_that_grows_in_time_never_counts() {
        check(&[
            (0, file("half"), Step::Nothing),
            (600, file("half"), Step::Nothing),
            (690, file("whole"), Step::Nothing),
            (1_300, file("whole"), Step::Nothing),
            (1_390, file("whole"), Step::Take),
        ]);
    }

    #[test]
    fn the_same_bytes_written_anew_settle_anew() {
        let again = Seen::Content { hash: "new".to_owned(), stamp: Stamp { bytes: 1, ..Stamp::default() } };
        check(&[
            (0, file("new"), Step::Nothing),
            (600, again.clone(), Step::Nothing),
            (700, again.clone(), Step::Nothing),
            (1_300, again, Step::Take),
        ]);
    }

    #[test]
    fn a_change_taken_back_before_it_settled_was_none() {
        check(&[(0, file("new"), Step::Nothing), (600, file("old"), Step::Nothing), (1_400, file("old"), Step::Nothing)]);
    }

    #[test]
    fn a_short_gap_is_no_failure() {
        check(&[(0, missing(), Step::Nothing), (300, file("new"), Step::Nothing), (1_000, file("new"), Step::Take)]);
    }

    #[test]
    fn each_failure_is_reported_once_and_its_end_too() {
        check(&[
            (0, file("bad"), Step::Nothing),
            (700, file("bad"), Step::Take),
            (5_000, file("bad"), Step::Nothing),
            (9_000, file("bad"), Step::Nothing),
            (9_100, missing(), Step::Nothing),
            (9_800, missing(), Step::Take),
            (10_000, missing(), Step::Nothing),
            (11_000, file("old"), Step::Unchanged),
            (12_000, file("old"), Step::Nothing),
        ]);
    }

    #[test]
    fn who_asks_is_told_even_what_is_known() {
        let mut settling = Settling::new("old".to_owned(), SETTLE);
        assert_eq!(settling.observe(at(0), file("old"), true), Step::Unchanged);
        assert_eq!(settling.observe(at(10), file("bad"), false), Step::Nothing);
        assert_eq!(settling.observe(at(710), file("bad"), false), Step::Take);
        settling.failed();
        assert_eq!(settling.observe(at(800), file("bad"), true), Step::Nothing);
        assert_eq!(settling.observe(at(1_500), file("bad"), false), Step::Take);
    }
}
