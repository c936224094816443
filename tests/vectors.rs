//! Every vector through the Rust twin. (Through both stores: `store_contract.rs`.)
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::HashMap;

use support::vectors::{What, all, check, compile};
use weir::limit::{State, decide};

#[test]
fn the_pure_function_gives_every_right_answer() {
    let mut checked = 0;
    for vector in all() {
        let mut states: HashMap<&str, State> = HashMap::new();
        let mut policies = HashMap::new();
        for (index, event) in vector.events.iter().enumerate() {
            match &event.what {
                What::Policy(own) => {
                    policies.insert(event.user.as_str(), compile(&vector.policy, Some(own)));
                }
                What::Request(cost, expected) => {
                    let policy = policies.entry(event.user.as_str()).or_insert_with(|| compile(&vector.policy, None));
                    let decision = decide(policy, states.entry(event.user.as_str()).or_default(), event.at, *cost);
                    check(&vector, index, event, expected, &decision);
                    checked += 1;
                }
            }
        }
    }
    assert_eq!(checked, 29_452, "the number of requests in tests/vectors");
}
