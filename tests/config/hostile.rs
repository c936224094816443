//! Files that somebody made to hurt, and files that chance made.

use std::fmt::Write as _;
use std::fs;

use proptest::prelude::*;
use weir::config::{Config, LoadCause, Overrides, Who, load};

const MIB: usize = 1 << 20;

#[test]
fn a_file_of_50_mib_is_refused_by_its_size() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limit.yaml");
    // A file with a hole: it is 50 MiB long and takes no room.
    fs::File::create(&path).and_then(|file| file.set_len(50 * MIB as u64)).expect("a large file");
    let error = load(&path).expect_err("a large file");
    assert!(matches!(error.cause, LoadCause::TooLarge), "{error}");
    assert!(error.to_string().ends_with("larger than 1048576 bytes, which no limit file needs"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_pipe_keeps_nobody_waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limit.yaml");
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
    assert!(made.success());
    assert!(load(&path).expect_err("a pipe").to_string().ends_with("it is not a regular file"));
}

/// Text of a MiB that begins so and goes on so.
fn large(start: &str, again: &str) -> String {
    let mut text = start.to_owned();
    while text.len() + again.len() <= MIB {
        text.push_str(again);
    }
    text
}

#[test]
fn large_files_of_one_trick_end_with_few_words() {
    let mut tiers = "tiers:\n".to_owned();
    for number in 0..50_000 {
        let _ = writeln!(tiers, "  t{number}: {{a: b}}");
    }
    let mut keys = "defaults:\n".to_owned();
    for number in 0..90_000 {
        let _ = writeln!(keys, "  k{number}: 1");
    }
    let tricks = [
        large("defaults: ", "["),
        large("defaults: ", "{a: "),
        large("", "- "),
        large("", "? "),
        large("defaults: \"", "x"),
        large("defaults: ", "x"),
        large("", "defaults:\n"),
        large("tiers: &a [", "&a x, "),
        large("tiers: &a\n", "  ? *a\n"),
        large("tiers: [", "!t x, "),
        large("", "---\n"),
        large("#", "#"),
        large("", "%YAML 1.2\n"),
        large("routes:\n", "  - {}\n"),
        large("a: ", "*"),
        large("a: |\n", "  x\n"),
        tiers,
        keys,
    ];
    for text in tricks {
        let start: String = text.chars().take(30).collect();
        let mistakes = Config::from_yaml(&text).expect_err(&start);
        assert!(mistakes.len() <= 101, "{start:?}: {} mistakes", mistakes.len());
        let shown: usize = mistakes.iter().map(|mistake| mistake.to_string().len()).sum();
        assert!(shown < 64 * 1024, "{start:?}: {shown} bytes of mistakes");
    }
}

#[test]
fn of_more_than_a_hundred_mistakes_the_first_are_shown() {
    let mut text = "defaults:\n".to_owned();
    for number in 0..150 {
        let _ = writeln!(text, "  k{number}: 1");
    }
    let mistakes = Config::from_yaml(&text).expect_err("unknown keys");
    assert_eq!(mistakes.len(), 101);
    assert_eq!(mistakes[0].line, 2);
    assert_eq!(mistakes[100].message, "there are more mistakes: these are the first 100");
}

/// Every policy that the file alone can make.
fn all_policies_compile(config: &Config) -> Result<(), TestCaseError> {
    let tiers = config.tiers.keys().map(|tier| Who::User { tier: Some(tier) });
    let whos: Vec<_> = tiers.chain([Who::User { tier: None }, Who::SharedAnonymous, Who::Address]).collect();
    for who in whos {
        for route in config.routes.iter().map(Some).chain([None]) {
            let policy = config.layers(who, route, Overrides::default()).policy();
            prop_assert!(policy.is_ok(), "{who:?} on {route:?}: {policy:?}");
        }
    }
    Ok(())
}

/// A layer whose values fit each on its own, and now and then not together.
fn part() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        prop_oneof![Just("0.00001"), Just("0.1"), Just("2"), Just("1000000")].prop_map(|value| format!("tokens_per_second: {value}")),
        prop_oneof![Just("1"), Just("100"), Just("1000000"), Just("1000000000")].prop_map(|value| format!("bucket_capacity: {value}")),
        prop_oneof![Just("10"), Just("10000"), Just("10001"), Just("1000000000")].prop_map(|value| format!("window_limit: {value}")),
        prop_oneof![Just("exact"), Just("sliced")].prop_map(|value| format!("window_precision: {value}")),
        prop_oneof![Just("0.1"), Just("2592000")].prop_map(|value| format!("window_seconds: {value}")),
        prop_oneof![Just("hybrid"), Just("token_bucket"), Just("sliding_window")].prop_map(|value| format!("algorithm: {value}")),
    ];
    proptest::collection::vec(field, 0..3).prop_map(|mut fields| {
        fields.sort_by_key(|field| field.split(':').next().unwrap_or_default().to_owned());
        fields.dedup_by_key(|field| field.split(':').next().unwrap_or_default().to_owned());
        fields.join(", ")
    })
}

fn file() -> impl Strategy<Value = String> {
    let own = || proptest::option::of(part());
    (part(), [part(), part()], [own(), own()], [own(), own()], [own(), own()]).prop_map(
        |(defaults, tiers, on_route, limits, [shared, per_address])| {
            let limit = |limits: &Option<String>| limits.as_ref().map_or(String::new(), |limits| format!(", limits: {{{limits}}}"));
            let mut tier = tiers.iter().zip(&on_route).map(|(part, on_route)| {
                let route = on_route.as_ref().filter(|_| limits[0].is_some());
                let route = route.map_or(String::new(), |part| format!("routes: {{r0: {{{part}}}}}, "));
                format!("{{{route}{part}}}")
            });
            let anonymous: Vec<String> = [("shared", shared), ("per_address", per_address)]
                .into_iter()
                .filter_map(|(key, part)| Some(format!("{key}: {{{}}}", part?)))
                .collect();
            format!(
                "defaults: {{{defaults}}}\ntiers: {{t0: {}, t1: {}}}\nroutes:\n  - {{name: r0, match: {{path: /0}}{}}}\n  - {{name: r1, match: {{path: /1}}{}}}\nanonymous: {{{}}}\n",
                tier.next().unwrap_or_default(),
                tier.next().unwrap_or_default(),
                limit(&limits[0]),
                limit(&limits[1]),
                anonymous.join(", ")
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_taken_makes_a_policy_for_everybody_everywhere(text in file()) {
        match Config::from_yaml(&text) {
            Ok((config, _)) => all_policies_compile(&config)?,
            Err(mistakes) => for mistake in mistakes {
                // Each value is in range: what is refused is refused for what it is together with others.
                let together = mistake.message.contains("30 days") || mistake.message.contains("not sliced");
                prop_assert!(together, "{mistake}\n{text}");
            },
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "[ \\n\\t:#&*!|>'\"%@`{}\\[\\],?a-z0-9.~-]{0,200}") {
        let _ = Config::from_yaml(&text);
    }

    #[test]
    fn no_damage_to_the_example_makes_it_panic_or_take_what_does_not_fit(
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), 0_usize..40, "[ \\n:*&{}\\[\\]0-9a-z~.]{0,6}"), 1..4)
    ) {
        let mut text: Vec<char> = include_str!("../../config/limit.yaml").chars().collect();
        for (at, length, put) in cuts {
            let at = at.index(text.len());
            let end = (at + length).min(text.len());
            text.splice(at..end, put.chars());
        }
        let text: String = text.into_iter().collect();
        if let Ok((config, _)) = Config::from_yaml(&text) {
            all_policies_compile(&config)?;
        }
    }
}
