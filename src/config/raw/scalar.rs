//! What a single value may look like, and what was probably meant.

use super::tree::Value;

/// A plain decimal that a double can hold: digits, perhaps a sign and a fraction; no exponent, no leading zero, no underscore, no other base.
pub(super) fn decimal(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').map_or((unsigned, None), |(whole, fraction)| (whole, Some(fraction)));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let well_formed = digits(whole) && (whole == "0" || !whole.starts_with('0')) && fraction.is_none_or(digits);
    // Adding 0 makes -0 the 0 that it equals.
    if well_formed { text.parse().ok().map(|number: f64| number + 0.0).filter(|number| number.is_finite()) } else { None }
}

/// Nothing, in one of YAML's spellings.
pub(super) fn is_null(value: &Value) -> bool {
    matches!(value, Value::Plain(text) if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
}

/// Whether some reader of YAML takes this word, without quotes, for a truth value, for nothing, or for a number.
pub(super) fn is_ambiguous(word: &str) -> bool {
    const WORDS: [&str; 10] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "~"];
    let digits: String = word.chars().filter(|one| *one != '_').collect();
    let number = digits.starts_with(|one: char| one.is_ascii_digit()) && digits.parse::<f64>().is_ok();
    number || word.starts_with("0x") || WORDS.contains(&word.to_ascii_lowercase().as_str())
}

/// What was found, for people.
pub(super) fn describe(value: &Value) -> String {
    match value {
        value if is_null(value) => "nothing".to_owned(),
        Value::Plain(text) => shown(text),
        Value::Quoted(text) => format!("the text {:?}", shortened(text)),
        Value::Map(_) => "keys and values".to_owned(),
        Value::List(_) => "a list".to_owned(),
        Value::Refused => "something refused".to_owned(),
    }
}

/// A word as it stands where it is harmless, else in quotes with escapes; never long.
pub(super) fn shown(text: &str) -> String {
    let harmless = !text.is_empty() && text.chars().all(|one| one.is_alphanumeric() || (one.is_ascii_graphic() && one != '"'));
    let text = shortened(text);
    if harmless { text } else { format!("{text:?}") }
}

fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    if text.chars().nth(MOST).is_none() { text.to_owned() } else { text.chars().take(MOST).chain(['…']).collect() }
}

/// The known word that `word` is most likely a slip of.
pub(in crate::config) fn closest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = shortened(word).to_lowercase();
    let (best, likeness) = known.iter().map(|known| (*known, likeness(&word, known))).max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    (likeness > 0.8).then_some(best)
}

/// How alike two words are, 0 … 1; a slip of the last part of a longer name (`capcity` of `bucket_capacity`) is nearly as good.
fn likeness(word: &str, known: &str) -> f64 {
    let last = known.rsplit('_').next().unwrap_or(known);
    strsim::jaro_winkler(word, known).max(0.95 * strsim::jaro_winkler(word, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_decimals_are_numbers() {
        for (text, number) in [("12", 12.0), ("0.5", 0.5), ("0", 0.0), ("-3", -3.0), ("1000000000", 1e9), ("0.000001", 0.000_001)] {
            assert_eq!(decimal(text), Some(number), "{text}");
        }
        for text in [
            "", "-", ".", "1.", ".5", "+1", "012", "00", "1_000", "1e3", "1E3", "0x10", "0o17", ".inf", "-.inf", ".nan", "inf", "NaN", "١",
            "1,5", "1 0",
        ] {
            assert_eq!(decimal(text), None, "{text}");
        }
        assert!(decimal("-0").is_some_and(f64::is_sign_positive));
    }

    #[test]
    fn words_that_others_read_as_something_else_are_ambiguous() {
        for word in ["on", "No", "y", "null", "12", "012", "1_000", "1e3", "0x10", "0.5"] {
            assert!(is_ambiguous(word), "{word}");
        }
        for word in ["gold", "one", "nan", "inf", "e3", "7days", "v2", "2nd-tier"] {
            assert!(!is_ambiguous(word), "{word}");
        }
    }
}
