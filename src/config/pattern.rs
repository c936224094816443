//! Which paths a route takes.

use std::fmt;

/// The longest pattern, bytes.
pub(super) const MOST_BYTES: usize = 1_024;
/// More stars than any path has parts worth naming.
pub(super) const MOST_STARS: usize = 8;

/// A path, exact or with `*`, each of which stands for any number of characters, `/` among them, also for none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
}

impl Pattern {
    /// A pattern as it is written.
    ///
    /// # Errors
    /// What is wrong with it, and what to do: it does not begin with `/` or `*`, is too long, has too many stars, or characters
    /// that no path has.
    pub fn new(text: &str) -> Result<Self, (String, &'static str)> {
        if text.len() > MOST_BYTES {
            return Err((format!("a path of {} bytes", text.len()), "a path has at most 1024 bytes"));
        }
        if !text.starts_with(['/', '*']) {
            return Err((format!("{text:?} is not a path"), "a path begins with / (or with *, in quotes)"));
        }
        if text.contains(['?', '#']) {
            return Err((format!("{text:?} has a query in it"), "only the path is compared: leave out what follows ? or #"));
        }
        if text.chars().any(|one| one.is_control() || one.is_whitespace()) {
            return Err((format!("{text:?} has white space in it"), "write it as the client sends it: %20 for a space"));
        }
        if text.matches('*').count() > MOST_STARS {
            return Err((format!("{} stars in a path", text.matches('*').count()), "a path has at most 8 stars"));
        }
        Ok(Self { text: text.into() })
    }

    /// The pattern as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether `path` is one of those meant. Takes time in proportion to the path's length, however the stars stand.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let Some((first, rest)) = self.text.split_once('*') else {
            return *self.text == *path;
        };
        let Some(mut left) = path.strip_prefix(first) else {
            return false;
        };
        let (middle, last) = rest.rsplit_once('*').map_or(("", rest), |(middle, last)| (middle, last));
        // Taking each part where it first occurs leaves the most for those behind it.
        for part in middle.split('*') {
            match left.find(part) {
                Some(at) => left = &left[at + part.len()..],
                None => return false,
            }
        }
        left.ends_with(last)
    }

    /// Whether every path of `other` is also one of this pattern. (A star of `other` is an ordinary character here, which only a
    /// star of this pattern can take: then that star takes whatever else could stand there.)
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.matches(&other.text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, path: &str, expected: bool) {
        assert_eq!(Pattern::new(pattern).expect("a pattern").matches(path), expected, "{pattern} on {path}");
    }

    #[test]
    fn without_a_star_the_whole_path_must_be_equal() {
        check("/search", "/search", true);
        check("/search", "/search/", false);
        check("/search", "/Search", false);
        check("/search", "/searches", false);
    }

    #[test]
    fn a_star_takes_any_number_of_characters() {
        check("/item/*", "/item/7", true);
        check("/item/*", "/item/7/parts", true);
        check("/item/*", "/item/", true);
        check("/item/*", "/item", false);
        check("*", "", true);
        check("*.png", "/a/b.png", true);
        check("*.png", "/a/b.png.exe", false);
        check("/a*a", "/a", false);
        check("/a*a", "/aa", true);
    }

    #[test]
    fn several_stars_take_each_their_own() {
        check("/*/b/*/d", "/a/b/c/d", true);
        check("/*/b/*/d", "/a/b/d", false);
        check("/*b*b", "/bb", true);
        check("/*b*b", "/b", false);
        check("/**x", "/x", true);
        check("/*ab*", "/aab", true);
    }

    #[test]
    fn a_path_of_stars_and_near_misses_costs_little() {
        let pattern = Pattern::new("/*aaaaaaab*aaaaaaab*aaaaaaab*c").expect("a pattern");
        assert!(!pattern.matches(&format!("/{}", "a".repeat(60_000))));
    }

    #[test]
    fn what_is_covered_is_all_taken() {
        let covers = |one: &str, other: &str| Pattern::new(one).expect("a pattern").covers(&Pattern::new(other).expect("a pattern"));
        assert!(covers("/item/*", "/item/7"));
        assert!(covers("/item/*", "/item/*/parts"));
        assert!(covers("*", "/x*"));
        assert!(!covers("/item/*/parts", "/item/*"));
        assert!(!covers("/item/7", "/item/*"));
    }
}
