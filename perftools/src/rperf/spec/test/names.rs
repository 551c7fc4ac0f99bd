//! Names of tests, also misspelt ones.

use super::id::Test;
use super::table::{GONE, TESTS};
use crate::common::error::{Error, Result};

impl Test {
    /// The name on the command line and in the output.
    pub fn name(self) -> &'static str {
        TESTS.iter().find(|t| t.0 == self).map_or("?", |t| t.1)
    }

    /// What it is, in a line.
    pub fn about(self) -> &'static str {
        TESTS.iter().find(|t| t.0 == self).map_or("", |t| t.2)
    }

    /// The test of this name.
    ///
    /// # Errors
    /// Says which name may have been meant.
    pub fn from_name(name: &str) -> Result<Self> {
        if let Some(test) = TESTS.iter().find(|t| t.1 == name) {
            return Ok(test.0);
        }
        if GONE.contains(&name) {
            return Err(Error::usage(format!(
                "{name}: SDP is gone from Linux (it never was in the kernel's own sources, and OFED dropped it in 2014); rc_bw and tcp_bw measure what replaced it"
            )));
        }
        let hint =
            Self::suggest(name).map_or_else(String::new, |near| format!("did you mean {near}? "));
        Err(Error::usage(format!(
            "{name}: no such test; {hint}`rperf --help tests` lists them"
        )))
    }

    /// The names of all tests.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TESTS.iter().map(|test| test.1)
    }

    /// True for the name of a test, also of one that is gone.
    pub fn is_name(name: &str) -> bool {
        GONE.contains(&name) || TESTS.iter().any(|t| t.1 == name)
    }

    /// The test name nearest to a misspelt one, if it is near.
    pub fn suggest(name: &str) -> Option<&'static str> {
        TESTS
            .iter()
            .map(|t| {
                (
                    strsim::damerau_levenshtein(t.1, &name.to_lowercase().replace('-', "_")),
                    t.1,
                )
            })
            .filter(|(distance, known)| *distance <= known.len() / 3)
            .min()
            .map(|near| near.1)
    }

    /// The list that `--help tests` prints.
    pub fn list() -> String {
        let lines: Vec<String> = TESTS
            .iter()
            .map(|(_, name, about, _)| format!("    {name:<24}{about}\n"))
            .collect();
        lines.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_answered_with_the_near_one() {
        let text = Test::from_name("rc_bv").unwrap_err().to_string();
        assert!(text.contains("did you mean rc_bw"), "{text}");
        assert_eq!(Test::suggest("RC-LAT"), Some("rc_lat"));
        assert_eq!(Test::suggest("node17"), None);
    }

    #[test]
    fn sdp_is_gone() {
        let text = Test::from_name("sdp_lat").unwrap_err().to_string();
        assert!(text.contains("gone from Linux"), "{text}");
    }

    #[test]
    fn every_test_has_a_name_that_leads_back() {
        for (test, name, ..) in TESTS {
            assert_eq!(Test::from_name(name), Ok(*test));
            assert_eq!(test.name(), *name);
        }
    }
}
