//! Which value wins: every combination of layers, with and without a route.

use weir::config::{Config, Overrides, Own, Source, Who};
use weir::limit::{Algorithm, Field, Mode, Part, Value};

fn part(fields: &[(Field, f64)]) -> Part {
    let mut part = Part::default();
    for (field, number) in fields {
        part.set_number(*field, *number).expect("a value in range");
    }
    part
}

fn mode(word: &str) -> Part {
    let mut part = Part::default();
    part.set_word(Field::Mode, word).expect("a mode");
    part
}

/// A file in which those layers set the capacity whose bit is in `set`: 0 defaults, 1 tier, 2 route, 3 tier on route.
fn file(set: u32) -> Config {
    let capacity = |bit: u32| if set & (1 << bit) == 0 { "{}".to_owned() } else { format!("{{bucket_capacity: {}}}", 10 + bit) };
    let tier = if set & 2 == 0 { String::new() } else { "\n    bucket_capacity: 11".to_owned() };
    super::config(&format!(
        "defaults: {}\ntiers:\n  gold:{tier}\n    routes: {{search: {}}}\nroutes:\n  - {{name: search, match: {{path: /search}}, limits: {}}}\n  - {{name: plain, match: {{path: /plain}}}}\n",
        capacity(0),
        capacity(3),
        capacity(2)
    ))
}

/// One order, shown by every combination of seven layers, on a route with limits of its own and elsewhere.
#[test]
fn case_100_the_strongest_layer_that_sets_a_value_wins_and_is_its_source() {
    const ON_ROUTE: [(u32, Source); 6] = [
        (0, Source::Defaults),
        (1, Source::Tier),
        (2, Source::Route),
        (3, Source::TierOnRoute),
        (6, Source::Override),
        (7, Source::Temporary),
    ];
    const ELSEWHERE: [(u32, Source); 4] = [(0, Source::Defaults), (1, Source::Tier), (4, Source::Override), (5, Source::Temporary)];
    for set in 0_u32..256 {
        let config = file(set);
        let own = |bit: u32| (set & (1 << bit) != 0).then(|| part(&[(Field::BucketCapacity, f64::from(10 + bit))]));
        let (standing, temporary, route_standing, route_temporary) = (own(4), own(5), own(6), own(7));
        let overrides = Overrides {
            general: Own { standing: standing.as_ref(), temporary: temporary.as_ref() },
            route: Own { standing: route_standing.as_ref(), temporary: route_temporary.as_ref() },
        };
        for (path, order) in [("/search", &ON_ROUTE[..]), ("/plain", &ELSEWHERE[..]), ("/nowhere", &ELSEWHERE[..])] {
            let layers = config.layers(Who::User { tier: Some("gold") }, config.route(path, "GET"), overrides);
            let strongest = order.iter().rev().find(|(bit, _)| set & (1 << bit) != 0);
            let (expected, source) = strongest.map_or((100, Source::BuiltIn), |(bit, source)| (u64::from(10 + bit), *source));
            let policy = layers.policy().expect("a policy");
            assert_eq!((policy.bucket_capacity(), layers.source(Field::BucketCapacity)), (expected, source), "{path} with layers {set:#b}");
        }
    }
}

#[test]
fn layers_are_listed_weakest_first() {
    let config = file(0);
    let (standing, temporary) = (mode("enforce"), mode("shadow"));
    let own = Own { standing: Some(&standing), temporary: Some(&temporary) };
    let sources = |route| {
        let layers = config.layers(Who::User { tier: Some("gold") }, route, Overrides { general: own, route: own });
        layers.iter().map(|(source, _)| source.name()).collect::<Vec<_>>()
    };
    assert_eq!(sources(None), ["defaults", "tier", "override", "temporary"]);
    assert_eq!(sources(config.route_named("search")), ["defaults", "tier", "route", "tier-on-route", "override", "temporary"]);
}

#[test]
fn a_tier_that_the_file_does_not_know_adds_nothing() {
    let config = file(0b10);
    let capacity = |tier| config.layers(Who::User { tier }, None, Overrides::default()).policy().expect("a policy").bucket_capacity();
    assert_eq!((capacity(Some("gold")), capacity(Some("goald")), capacity(None)), (11, 100, 100));
}

/// On a route with limits of its own, the mode that holds with this general override and that for the route.
#[track_caller]
fn check_mode(general: [Option<&str>; 2], route: Option<&str>, expected: (Mode, Source)) {
    let config = file(0b1111);
    let parts = [general[0].map(mode), general[1].map(mode), route.map(mode)];
    let overrides = Overrides {
        general: Own { standing: parts[0].as_ref(), temporary: parts[1].as_ref() },
        route: Own { standing: parts[2].as_ref(), temporary: None },
    };
    let layers = config.layers(Who::User { tier: Some("gold") }, config.route_named("search"), overrides);
    let policy = layers.policy().expect("a policy");
    assert_eq!((policy.mode(), layers.source(Field::Mode)), expected, "{general:?}, on the route {route:?}");
    assert_eq!(policy.bucket_capacity(), 13, "nothing but the mode crosses");
}

#[test]
fn a_blocked_user_is_blocked_on_routes_with_limits_of_their_own() {
    check_mode([Some("block"), None], None, (Mode::Block, Source::Override));
    check_mode([Some("block"), None], Some("enforce"), (Mode::Block, Source::Override));
    check_mode([Some("bypass"), None], Some("block"), (Mode::Bypass, Source::Override));
    check_mode([None, Some("block")], None, (Mode::Block, Source::Temporary));
    check_mode([Some("bypass"), Some("block")], None, (Mode::Block, Source::Temporary));
}

#[test]
fn other_modes_stay_where_they_were_set() {
    check_mode([None, None], None, (Mode::Enforce, Source::BuiltIn));
    check_mode([Some("shadow"), None], None, (Mode::Enforce, Source::BuiltIn));
    check_mode([Some("shadow"), None], Some("block"), (Mode::Block, Source::Override));
    // A temporary pardon lifts the block everywhere.
    check_mode([Some("block"), Some("enforce")], None, (Mode::Enforce, Source::BuiltIn));
}

#[test]
fn anonymous_traffic_has_its_part_where_a_user_has_a_tier() {
    let config = super::config(
        "defaults: {bucket_capacity: 50, algorithm: token_bucket}\nanonymous:\n  shared: {bucket_capacity: 70}\n  per_address: {window_limit: 30}\n\
         routes:\n  - {name: search, match: {path: /s}, limits: {window_limit: 5}}\n",
    );
    let shared = config.layers(Who::SharedAnonymous, None, Overrides::default());
    let policy = shared.policy().expect("a policy");
    assert_eq!((policy.bucket_capacity(), policy.algorithm()), (70, Algorithm::TokenBucket));
    assert_eq!(shared.source(Field::BucketCapacity), Source::Anonymous);

    let address = config.layers(Who::Address, None, Overrides::default());
    let policy = address.policy().expect("a policy");
    assert_eq!((policy.window_limit(), policy.algorithm()), (30, Algorithm::SlidingWindow));
    assert_eq!(address.source(Field::Algorithm), Source::Anonymous);

    let on_route = config.layers(Who::Address, config.route("/s", "GET"), Overrides::default());
    let policy = on_route.policy().expect("a policy");
    assert_eq!((policy.window_limit(), policy.algorithm()), (5, Algorithm::SlidingWindow));
    assert_eq!(on_route.source(Field::WindowLimit), Source::Route);
}

#[test]
fn an_address_has_another_algorithm_only_if_its_own_part_says_so() {
    let config = super::config("anonymous: {per_address: {algorithm: hybrid}}\n");
    assert_eq!(config.anonymous.per_address.get(Field::Algorithm), Some(Value::Word("hybrid")));
    let config = super::config("anonymous: {per_address: {}}\n");
    assert_eq!(config.anonymous.per_address.get(Field::Algorithm), Some(Value::Word("sliding_window")));
}
