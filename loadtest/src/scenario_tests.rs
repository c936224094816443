use super::*;

const GOOD: &str = "# Does it?\nseconds: 1\ngroups: [{name: a, users: 1, each: {rate: 10}}]\nvariants: [{name: v}]\n";

fn refused(text: &str) -> String {
    Scenario::parse("x", text).err().unwrap_or_else(|| panic!("this is no scenario, and was taken for one:\n{text}"))
}

#[test]
fn a_scenario_says_its_question_first() {
    assert_eq!(Scenario::parse("x", GOOD).expect("a scenario").question, "Does it?");
    assert!(refused(&GOOD.replace("# Does it?\n", "")).contains("first line"));
    assert!(refused(&GOOD.replace("it?", "it.")).contains("question"));
}

#[test]
fn what_is_misspelt_doubled_or_out_of_range_is_refused() {
    assert!(refused(&GOOD.replace("seconds: 1", "secnods: 1")).contains("secnods"));
    assert!(refused(&GOOD.replace("rate: 10", "rate: 10, burts: 1")).contains("burts"));
    assert!(refused(&GOOD.replace("seconds: 1", "seconds: 1\nseconds: 2")).contains("seconds"));
    assert!(refused(&GOOD.replace("seconds: 1", "seconds: .inf")).contains("seconds"));
    assert!(refused(&GOOD.replace("users: 1,", "users: 2001,")).contains("users"));
    assert!(refused(&GOOD.replace("rate: 10", "rate: 10}, together: {rate: 1")).contains("either"));
    assert!(refused(&GOOD.replace("{name: v}", "{name: v}, {name: v}")).contains("two of that name"));
    assert!(refused(&GOOD.replace("{name: v}", "{name: v, store: memory, events: [{at_seconds: 0, do: stop_redis}]}")).contains("nothing"));
    assert!(refused(&GOOD.replace("{rate: 10}", "{}").replace("{name: v}", "{name: v, clock: virtual}")).contains("virtual"));
    assert!(refused(&format!("{GOOD}expect: [{{figure: f, variant: w, at_most: 1}}]\n")).contains("no variant w"));
    assert!(refused(&format!("{GOOD}expect: [{{figure: f, variant: v}}]\n")).contains("at_most"));
}

#[test]
fn the_limits_of_a_variant_lie_over_those_of_the_scenario() {
    let text = GOOD.replace("seconds: 1", "seconds: 1\nlimits: {defaults: {tokens_per_second: 5, window_limit: 9}}");
    let text = text.replace("{name: v}", "{name: v, limits: {defaults: {window_limit: 7}}}");
    let scenario = Scenario::parse("x", &text).expect("a scenario");
    let expected = serde_json::json!({"defaults": {"tokens_per_second": 5, "window_limit": 7}});
    assert_eq!(scenario.limits(&scenario.variants[0]), expected);
}

#[test]
fn every_scenario_of_the_repository_can_be_read() {
    let mut count = 0;
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios")).expect("the folder") {
        Scenario::read(&file.expect("an entry").path()).expect("a scenario");
        count += 1;
    }
    assert!(count >= 9, "only {count} scenarios");
}
