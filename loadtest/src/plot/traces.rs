//! The traces of the documents: one user, made-up, the same for each algorithm.

use std::fmt::Write as _;

/// 1 January 2026, 00:00 UTC, in µs.
const START: u64 = 1_767_225_600_000_000;

/// In the order of the rows.
pub(super) const ALGORITHMS: [&str; 3] = ["token_bucket", "sliding_window", "hybrid"];
/// Of the built-in policy, which the traces are made for.
pub(super) const WINDOW_SECONDS: usize = 60;
pub(super) const WINDOW_LIMIT: u32 = 200;

pub(super) struct Trace {
    /// Of the file.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Stretches: seconds, and requests in each of them, evenly spread.
    stretches: &'static [(u64, u64)],
}

pub(super) const ALL: [Trace; 2] = [
    Trace {
        name: "storm",
        title: "1 a second; 100 within one second at 1:00; a storm of 20 a second from 3:00 to 5:00",
        stretches: &[(60, 1), (1, 100), (119, 1), (120, 20), (120, 1)],
    },
    Trace { name: "steady", title: "a steady 4 a second, twice the allowed rate, for five minutes", stretches: &[(300, 4)] },
];

impl Trace {
    /// As `weir simulate` takes it: the algorithm as the user's override, then the requests.
    pub(super) fn lines(&self, algorithm: &str) -> String {
        let mut lines = format!("{{\"at\":{START},\"user\":\"a\",\"policy\":{{\"algorithm\":\"{algorithm}\"}}}}\n");
        let mut second = START;
        for (seconds, requests) in self.stretches {
            for _ in 0..*seconds {
                for request in 0..*requests {
                    // A String takes everything.
                    let _ = writeln!(lines, "{{\"at\":{},\"user\":\"a\"}}", second + request * 1_000_000 / requests);
                }
                second += 1_000_000;
            }
        }
        lines
    }
}
