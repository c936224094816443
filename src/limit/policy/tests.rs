use super::*;

fn number(field: Field, value: f64) -> Result<(), Problem> {
    Part::default().set_number(field, value)
}

/// A part of `name=value` words.
fn part(words: &str) -> Part {
    let mut part = Part::default();
    for word in words.split_whitespace() {
        let (name, value) = word.split_once('=').expect("name=value");
        part.set_text(Field::from_name(name).expect("a field"), value).expect("a value of it");
    }
    part
}

fn policy(words: &str) -> Policy {
    Policy::compile(&part(words)).unwrap_or_else(|problems| panic!("{words}: {problems:?}"))
}

/// `min` and `max` are taken, what is next to them is not, and the message names field, value and range.
#[track_caller]
fn check_range(field: Field, min: f64, below: f64, max: f64, above: f64, range: &str) {
    for good in [min, max] {
        assert_eq!(number(field, good), Ok(()), "{field} = {good}");
    }
    for bad in [below, above, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -min, -max] {
        // A range that begins at 0 takes -0 as well: it is the same number.
        if bad == 0.0 && min == 0.0 {
            continue;
        }
        let problem = number(field, bad).expect_err("out of range");
        assert_eq!(problem.to_string(), format!("{field}: {bad} is not {range}"));
    }
}

#[test]
fn every_number_has_a_range_and_says_so() {
    check_range(Field::TokensPerSecond, 0.000_001, 0.000_000_9, 1e9, 1_000_000_001.0, "a number from 0.000001 to 1000000000");
    check_range(Field::BucketCapacity, 1.0, 0.0, 1e9, 1_000_000_001.0, "a whole number from 1 to 1000000000");
    check_range(Field::WindowSeconds, 0.1, 0.099, 2_592_000.0, 2_592_000.1, "a number from 0.1 to 2592000");
    check_range(Field::WindowLimit, 1.0, 0.0, 1e9, 1_000_000_001.0, "a whole number from 1 to 1000000000");
    check_range(Field::WindowSlices, 1.0, 0.0, 1_000.0, 1_001.0, "a whole number from 1 to 1000");
    check_range(Field::BreakerRatio, 0.0, -0.001, 1e6, 1_000_001.0, "a number from 0 to 1000000");
    check_range(Field::BreakerThreshold, 0.0, -0.001, 1e9, 1_000_000_001.0, "a number from 0 to 1000000000");
    check_range(Field::BreakerCooldownSeconds, 0.1, 0.099, 3_600.0, 3_600.1, "a number from 0.1 to 3600");
}

#[test]
fn whole_numbers_have_no_fraction() {
    for field in [Field::BucketCapacity, Field::WindowLimit, Field::WindowSlices] {
        let problem = number(field, 1.5).expect_err("a fraction");
        assert!(problem.to_string().starts_with(&format!("{field}: 1.5 is not a whole number")), "{problem}");
    }
}

#[test]
fn every_word_is_one_of_its_field_and_no_other() {
    for (field, words) in [
        (Field::Algorithm, "hybrid, token_bucket, sliding_window"),
        (Field::WindowPrecision, "exact, sliced"),
        (Field::WhileOpen, "both, window"),
        (Field::Mode, "enforce, shadow, block, bypass"),
    ] {
        for word in words.split(", ") {
            assert_eq!(Part::default().set_word(field, word), Ok(()), "{field} = {word}");
        }
        for word in ["", "Hybrid", "BLOCK", " enforce", "1", "off"] {
            let problem = Part::default().set_word(field, word).expect_err("no word of it");
            assert_eq!(problem.to_string(), format!("{field}: {word:?} is not one of {words}"));
        }
        assert_eq!(number(field, 1.0).expect_err("a number").to_string(), format!("{field}: 1 is not one of {words}"));
    }
}

#[test]
fn a_word_is_no_number() {
    for field in Field::ALL.into_iter().filter(|field| !matches!(field.kind(), Kind::Word(_))) {
        let problem = Part::default().set_word(field, "many").expect_err("a word");
        assert_eq!(problem.to_string(), format!("{field}: \"many\" is not {}", field.kind()));
    }
}

#[test]
fn a_limit_of_nothing_is_refused_with_the_way_to_say_it() {
    for field in [Field::TokensPerSecond, Field::BucketCapacity, Field::WindowLimit] {
        for nothing in [0.0, -0.0] {
            let problem = number(field, nothing).expect_err("a limit of 0");
            assert_eq!(problem.hint.as_deref(), Some("to refuse everything use mode: block"), "{field}");
        }
        assert_eq!(number(field, -1.0).expect_err("below 0").hint, None, "{field}");
    }
    assert_eq!(number(Field::WindowSlices, 0.0).expect_err("no slices").hint, None);
}

#[test]
fn text_is_a_plain_decimal_number() {
    let rate = |text: &str| {
        let mut part = Part::default();
        part.set_text(Field::TokensPerSecond, text).map(|()| part.get(Field::TokensPerSecond).and_then(Value::number))
    };
    for (text, value) in [("2", 2.0), ("0.5", 0.5), ("1e3", 1_000.0), ("1E-3", 0.001), ("+7", 7.0), (".5", 0.5), ("007", 7.0)] {
        assert_eq!(rate(text), Ok(Some(value)), "{text}");
    }
    for text in
        ["", " 1", "1 ", "nan", "NaN", "inf", "-inf", "infinity", "0x10", "1_000", "1,5", "abc", "1e400", "--1", "e", "1e", ".", "٣"]
    {
        let problem = rate(text).expect_err(text);
        assert_eq!(problem.to_string(), format!("tokens_per_second: {text:?} is not a number from 0.000001 to 1000000000"));
    }
    assert_eq!(rate("-1").expect_err("below 0").to_string(), "tokens_per_second: -1 is not a number from 0.000001 to 1000000000");
}

#[test]
fn a_message_shows_no_more_than_a_line_of_what_was_written() {
    let problem = Part::default().set_text(Field::Mode, &"x".repeat(1_000_000)).expect_err("no word of it");
    assert!(problem.to_string().len() < 200, "{}", problem.to_string().len());
}

#[test]
fn a_value_that_is_refused_leaves_the_one_that_was_there() {
    let mut part = part("bucket_capacity=7 mode=shadow");
    part.set_number(Field::BucketCapacity, 0.0).expect_err("a limit of 0");
    part.set_word(Field::Mode, "on").expect_err("no word of it");
    part.set_text(Field::BucketCapacity, "").expect_err("no number");
    assert_eq!(part, self::part("bucket_capacity=7 mode=shadow"));
}

#[test]
fn every_field_is_known_by_its_name_alone() {
    for field in Field::ALL {
        assert_eq!(Field::from_name(field.name()), Some(field));
        assert_eq!(Field::from_name(&field.name().to_uppercase()), None);
    }
    assert_eq!(Field::from_name(""), None);
}

#[test]
fn the_upper_layer_wins_field_by_field() {
    let mut merged = part("bucket_capacity=7 tokens_per_second=3");
    merged.lay_over(&part("bucket_capacity=9 mode=shadow"));
    assert_eq!(merged, part("bucket_capacity=9 tokens_per_second=3 mode=shadow"));
    merged.unset(Field::Mode);
    assert_eq!(merged.iter().map(|(field, _)| field).collect::<Vec<_>>(), [Field::TokensPerSecond, Field::BucketCapacity]);
    assert!(Part::default().is_empty() && !merged.is_empty());
}

#[test]
fn what_no_layer_sets_is_built_in() {
    let policy = Policy::default();
    assert_eq!((policy.tokens_per_second(), policy.bucket_capacity(), policy.window(), policy.window_limit()), (2.0, 100, 60 * US, 200));
    assert_eq!((policy.algorithm(), policy.precision()), (Algorithm::Hybrid, Precision::Exact));
    assert_eq!((policy.trip_point(), policy.cooldown()), (6.0, 10 * US));
    assert_eq!((policy.while_open(), policy.mode()), (WhileOpen::Both, Mode::Enforce));
    assert_eq!(policy.warnings(), []);
}

#[test]
fn a_window_limit_that_is_not_set_never_undercuts_the_rate() {
    let limit = |words: &str| policy(words).window_limit();
    assert_eq!(limit("tokens_per_second=1"), 200);
    assert_eq!(limit("tokens_per_second=4"), 240);
    assert_eq!(limit("tokens_per_second=3.34 window_seconds=60"), 201, "rounded up");
    assert_eq!(limit("tokens_per_second=1e9 bucket_capacity=1e9 window_seconds=60"), 1_000_000_000, "as large as there is");
    assert_eq!(limit("tokens_per_second=4 window_limit=5"), 5, "what is set stands");
}

#[test]
fn precision_follows_the_limit_unless_it_is_set() {
    let precision = |words: &str| policy(words).precision();
    assert_eq!(precision("window_limit=10000"), Precision::Exact);
    assert_eq!(precision("window_limit=10001"), Precision::Sliced { width: US });
    assert_eq!(precision("window_limit=5 window_precision=sliced"), Precision::Sliced { width: US });
    assert_eq!(precision("window_limit=10000 window_precision=exact"), Precision::Exact);
    assert_eq!(precision("window_precision=sliced window_slices=7"), Precision::Sliced { width: 8_571_429 }, "rounded up");
    assert_eq!(precision("window_precision=sliced window_seconds=0.1 window_slices=1000"), Precision::Sliced { width: 100 });
}

#[test]
fn an_exact_window_above_ten_thousand_is_a_problem_with_its_reason() {
    let problems = Policy::compile(&part("window_precision=exact window_limit=10001")).expect_err("too large");
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].to_string(), "window_precision: exact is not sliced, as window_limit is 10001");
    assert_eq!(problems[0].hint.as_deref(), Some("an exact window remembers every admission and takes a window_limit of at most 10000"));
    Policy::compile(&part("window_precision=exact tokens_per_second=1000")).expect_err("the limit that follows from the rate counts too");
}

#[test]
fn a_bucket_fills_within_thirty_days() {
    assert_eq!(policy("tokens_per_second=0.000001 bucket_capacity=2").fill_time(), 2_000_000 * US);
    assert_eq!(policy("tokens_per_second=0.5 bucket_capacity=1296000").fill_time(), 2_592_000 * US, "thirty days to the second");
    let problems = Policy::compile(&part("tokens_per_second=0.5 bucket_capacity=1296001")).expect_err("a moment longer");
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].to_string(), "bucket_capacity: 1296001 is not at most 30 days of tokens_per_second");
    let hint = problems[0].hint.as_deref().expect("a hint");
    assert_eq!(hint, "at 0.5 tokens a second the bucket would take 2592002 s to fill; the most is 2592000 s");
}

#[test]
fn all_problems_of_the_whole_are_told_at_once() {
    let words = "tokens_per_second=0.000001 bucket_capacity=1000 window_precision=exact window_limit=20000";
    assert_eq!(Policy::compile(&part(words)).expect_err("two problems").len(), 2);
}

#[test]
fn seconds_become_whole_microseconds() {
    assert_eq!(policy("window_seconds=0.1").window(), 100_000);
    assert_eq!(policy("window_seconds=0.1234567").window(), 123_457);
    assert_eq!(policy("window_seconds=2592000").window(), 2_592_000 * US);
    assert_eq!(policy("breaker_cooldown_seconds=3600").cooldown(), 3_600 * US);
}

#[test]
fn the_breaker_trips_at_a_multiple_of_the_rate_unless_told_otherwise() {
    assert_eq!(policy("tokens_per_second=5").trip_point(), 15.0);
    assert_eq!(policy("tokens_per_second=5 breaker_ratio=2").trip_point(), 10.0);
    assert_eq!(policy("tokens_per_second=5 breaker_threshold=4").trip_point(), 12.0);
    assert_eq!(policy("breaker_ratio=0").trip_point(), 0.0);
    assert_eq!(policy("breaker_threshold=0").trip_point(), 0.0);
}

#[test]
fn a_window_below_what_the_rate_promises_draws_a_warning() {
    let low = Warning::WindowBelowRate { window_limit: 119, promised: 120.0 };
    assert_eq!(policy("window_limit=119").warnings(), std::slice::from_ref(&low));
    assert!(low.to_string().contains("window_limit 119 is below tokens_per_second x window_seconds = 120"), "{low}");
    assert_eq!(policy("window_limit=120").warnings(), []);
    for algorithm in ["token_bucket", "sliding_window"] {
        assert_eq!(policy(&format!("window_limit=119 algorithm={algorithm}")).warnings(), [], "one limit alone contradicts nothing");
    }
}

/// Whatever is compiled lies within what the arithmetic is exact for.
#[test]
fn the_largest_of_everything_is_still_exact_as_a_double() {
    let largest =
        policy("tokens_per_second=1e9 bucket_capacity=1e9 window_seconds=2592000 window_limit=1e9 breaker_ratio=1e6 breaker_threshold=1e9");
    assert!(largest.trip_point().is_finite());
    assert!((largest.window_limit() as f64).mul_add(US as f64, largest.window() as f64) < 2_f64.powi(53));
}
