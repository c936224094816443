//! When whose request should start: a function of the scenario alone, the same for the real and the virtual clock.

use crate::scenario::{Group, Pace, Scenario, Variant};

/// The intended start of the `index`th request of a pace, s from the group's begin; none where the next follows the last answer.
pub(crate) fn intended(pace: &Pace, index: u64) -> Option<f64> {
    let rate = pace.rate?;
    let Some(burst) = pace.burst else { return Some(index as f64 / rate) };
    let (burst_number, place) = (index / burst.size, index % burst.size);
    let step = if burst.size > 1 { burst.within_ms / 1e3 / (burst.size - 1) as f64 } else { 0.0 };
    Some((burst_number * burst.size) as f64 / rate + place as f64 * step)
}

/// How far the `user`th of a group is behind the first, s: users that start in step would all ask in the same microsecond. Bursts
/// are spread over the time between two, single requests likewise.
pub(crate) fn stagger(group: &Group, user: u64) -> f64 {
    let Some(pace) = &group.each else { return 0.0 };
    let period = pace.rate.map_or(0.0, |rate| pace.burst.map_or(1, |burst| burst.size) as f64 / rate);
    // A group of one burst a user is meant to come at once.
    if pace.requests.is_some_and(|requests| requests <= pace.burst.map_or(1, |burst| burst.size)) {
        return 0.0;
    }
    period * user as f64 / group.users as f64
}

/// The same scenario in a second: to see that it works, not to measure. Counts shrink, rates and limits stay.
pub(crate) fn in_miniature(scenario: &mut Scenario) {
    const USERS: u64 = 12;
    const SECONDS: f64 = 0.4;
    let shrink = SECONDS / scenario.seconds.max(SECONDS);
    scenario.rounds = 1;
    scenario.seconds = scenario.seconds.min(SECONDS);
    let groups = |groups: &mut Vec<Group>| {
        for group in groups {
            group.users = group.users.min(USERS);
            group.connections = group.connections.min(4);
            group.warm_up = group.warm_up.min(2);
            group.start_seconds *= shrink;
            for pace in group.each.iter_mut().chain(&mut group.together) {
                pace.requests = pace.requests.map(|requests| requests.min(100));
                pace.rate = pace.rate.map(|rate| rate.min(2_000.0));
            }
        }
    };
    groups(&mut scenario.groups);
    for Variant { groups: own, events, .. } in &mut scenario.variants {
        own.iter_mut().for_each(groups);
        for event in events {
            event.at_seconds *= shrink;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Burst;

    fn pace(rate: Option<f64>, burst: Option<Burst>) -> Pace {
        Pace { rate, requests: None, burst }
    }

    #[test]
    fn requests_of_a_rate_start_evenly() {
        let pace = pace(Some(4.0), None);
        assert_eq!((0..4).filter_map(|index| intended(&pace, index)).collect::<Vec<_>>(), [0.0, 0.25, 0.5, 0.75]);
    }

    #[test]
    fn bursts_keep_the_rate_on_average() {
        let pace = pace(Some(10.0), Some(Burst { size: 5, within_ms: 100.0 }));
        let starts: Vec<_> = (0..11).filter_map(|index| intended(&pace, index)).collect();
        assert_eq!((starts[0], starts[1], starts[4]), (0.0, 0.025, 0.1));
        assert_eq!((starts[5], starts[10]), (0.5, 1.0));
    }

    #[test]
    fn without_a_rate_the_last_answer_starts_the_next_request() {
        assert_eq!(intended(&pace(None, None), 7), None);
    }
}
