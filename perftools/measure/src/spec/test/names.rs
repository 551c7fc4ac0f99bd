//! Names of the tests, and suggestions for misspelled names.

use base::error::{Error, Result};
use base::spelling::similar;

use super::table::{REMOVED, TESTS, Test};

impl Test {
    /// Returns the name on the command line and in the output.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns a description of one line.
    pub fn about(self) -> &'static str {
        self.row().about()
    }

    /// Returns the test with this name.
    ///
    /// # Errors
    /// A usage error if there is no such test; it suggests a similar name.
    pub fn from_name(name: &str) -> Result<Self> {
        if let Some(row) = TESTS.iter().find(|row| row.name == name) {
            return Ok(row.test);
        }
        if REMOVED.contains(&name) {
            return Err(Error::usage(format!(
                "{name}: Linux no longer has SDP, which OFED removed in 2014"
            ))
            .with_help("use rc_bw or tcp_bw"));
        }
        let error = Error::usage(format!("no test named `{name}`"));
        Err(error.with_help(match Self::suggest(name) {
            Some(test) => format!("did you mean {test}?"),
            None => "`rperf --help tests` lists the tests".to_owned(),
        }))
    }

    /// Returns the names of all tests.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TESTS.iter().map(|row| row.name)
    }

    /// Returns `true` if `name` is the name of a test, including removed ones.
    pub fn is_name(name: &str) -> bool {
        REMOVED.contains(&name) || TESTS.iter().any(|row| row.name == name)
    }

    /// Returns the test name that is most similar to a misspelled one, if any is similar enough.
    pub fn suggest(name: &str) -> Option<&'static str> {
        let typed = name.to_lowercase().replace('-', "_");
        let is_typed = TESTS.iter().find(|row| row.name == typed);
        is_typed
            .map(|row| row.name)
            .or_else(|| similar(&typed, Self::names()))
    }

    /// Returns the list of tests that `--help tests` prints.
    pub fn list() -> String {
        let lines: Vec<String> = TESTS
            .iter()
            .map(|row| format!("    {:<24}{}\n", row.name, row.about()))
            .collect();
        lines.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_similar_name_is_suggested() {
        let text = Test::from_name("rc_bv").unwrap_err().to_string();
        assert!(text.contains("did you mean rc_bw"), "{text}");
        assert_eq!(Test::suggest("RC-LAT"), Some("rc_lat"));
        assert_eq!(Test::suggest("node17"), None);
    }

    #[test]
    fn removed_tests_are_reported_as_such() {
        let text = Test::from_name("sdp_lat").unwrap_err().to_string();
        assert!(text.contains("no longer has SDP"), "{text}");
    }

    #[test]
    fn the_name_of_every_test_is_parsed_back() {
        for row in TESTS {
            assert_eq!(Test::from_name(row.name), Ok(row.test));
            assert_eq!(row.test.name(), row.name);
        }
    }
}
