//! Names of the tests, and suggestions for misspelled names.

use base::error::{Error, Result};
use base::spelling::similar;

use super::table::{REMOVED, TESTS, Test};

/// Names of perftest's programs without `ib_`, each with the test that measures the same.
const ALIASES: &[(&str, Test)] = &[
    ("send_bw", Test::RcBw),
    ("send_lat", Test::RcLat),
    ("write_bw", Test::RcRdmaWriteBw),
    ("write_lat", Test::RcRdmaWritePollLat),
    ("read_bw", Test::RcRdmaReadBw),
    ("read_lat", Test::RcRdmaReadLat),
    ("atomic_bw", Test::RcFetchAddMr),
    ("atomic_lat", Test::RcFetchAddLat),
];

/// Words in guessed names of tests, each with its part of the name.
const SERVICES: &[&str] = &[
    "rc", "uc", "ud", "xrc", "srd", "dc", "tcp", "udp", "sctp", "rds",
];
const VERBS: &[(&str, &str)] = &[
    ("send", ""),
    ("write", "rdma_write_"),
    ("read", "rdma_read_"),
    ("atomic", "fetch_add_"),
    ("fetch", "fetch_add_"),
    ("add", "fetch_add_"),
    ("compare", "compare_swap_"),
    ("swap", "compare_swap_"),
    ("cas", "compare_swap_"),
];
const METRICS: &[(&str, &str)] = &[
    ("bw", "bw"),
    ("bandwidth", "bw"),
    ("lat", "lat"),
    ("latency", "lat"),
    ("mr", "mr"),
];
/// Words that say nothing more.
const OTHERS: &[&str] = &["ib", "rdma", "test"];

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
        if let Some((_, test)) = ALIASES.iter().find(|(alias, _)| *alias == name) {
            return Ok(*test);
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

    /// Returns `true` if `name` is the name of a test, or one of a removed test or of perftest.
    pub fn is_name(name: &str) -> bool {
        REMOVED.contains(&name)
            || ALIASES.iter().any(|(alias, _)| *alias == name)
            || TESTS.iter().any(|row| row.name == name)
    }

    /// Returns the test name that is most similar to a misspelled one, if any is similar enough.
    pub fn suggest(name: &str) -> Option<&'static str> {
        let typed = name.to_lowercase().replace('-', "_");
        let is_typed = TESTS.iter().find(|row| row.name == typed);
        is_typed
            .map(|row| row.name)
            .or_else(|| guessed(&typed))
            .or_else(|| similar(&typed, Self::names()))
    }

    /// Returns the list of tests that `--help tests` prints.
    pub fn list() -> String {
        let lines: Vec<String> = TESTS
            .iter()
            .map(|row| format!("    {:<24}{}\n", row.name, row.about()))
            .collect();
        let aliases = ALIASES.iter().map(|(alias, _)| *alias);
        let aliases: Vec<&str> = aliases.collect();
        lines.concat()
            + &format!(
                "Names of perftest stand for tests over RC:\n    {}\n",
                aliases.join(", ")
            )
    }
}

/// Returns the test whose service, verb and figure a guessed name has, such as `rc_write_bw`. Each
/// word must be known, or nearly so.
fn guessed(name: &str) -> Option<&'static str> {
    let words = || {
        let services = SERVICES.iter().copied();
        let pairs = VERBS.iter().chain(METRICS).map(|(word, _)| *word);
        services
            .chain(pairs)
            .chain(OTHERS.iter().copied())
            .chain(["bi"])
    };
    let (mut service, mut verb, mut metric, mut is_bi) = (None, None, None, false);
    for typed in name.split('_') {
        let known = words().find(|word| *word == typed);
        let word = known.or_else(|| similar(typed, words()))?;
        let part = |table: &[(&str, &'static str)]| {
            let found = table.iter().find(|(name, _)| *name == word);
            found.map(|(_, part)| *part)
        };
        service = service.or(SERVICES.iter().find(|name| **name == word));
        verb = verb.or_else(|| part(VERBS));
        metric = metric.or_else(|| part(METRICS));
        is_bi |= word == "bi";
    }
    // A host can be named "lat".
    if service.is_none() && verb.is_none() {
        return None;
    }
    let (service, verb) = (service.copied().unwrap_or("rc"), verb.unwrap_or_default());
    let is_atomic = verb == "fetch_add_" || verb == "compare_swap_";
    let metric = match metric? {
        "bw" if is_atomic => "mr",
        metric => metric,
    };
    let bi = if is_bi { "bi_" } else { "" };
    let full = format!("{service}_{verb}{bi}{metric}");
    TESTS.iter().map(|row| row.name).find(|name| *name == full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_similar_name_is_suggested() {
        let text = Test::from_name("rc_bv").unwrap_err().to_string();
        assert!(text.contains("did you mean rc_bw"), "{text}");
        assert_eq!(Test::suggest("RC-LAT"), Some("rc_lat"));
        for host in [
            "node17",
            "lat",
            "bw-test",
            "write-node",
            "rc17",
            "dc-node1",
            "rack2_bw",
        ] {
            assert_eq!(Test::suggest(host), None, "{host}");
        }
        for (guess, name) in [
            ("rc_write_bw", "rc_rdma_write_bw"),
            ("rc_read_bw", "rc_rdma_read_bw"),
            ("rc_write_lat", "rc_rdma_write_lat"),
            ("rc_atomic_bw", "rc_fetch_add_mr"),
            ("rc_bandwidth", "rc_bw"),
            ("rc_wrte_bw", "rc_rdma_write_bw"),
            ("rc_write_bi_bw", "rc_rdma_write_bi_bw"),
            ("ud_send_latency", "ud_lat"),
            ("tcp-bandwidth", "tcp_bw"),
        ] {
            assert_eq!(Test::suggest(guess), Some(name), "{guess}");
        }
    }

    #[test]
    fn removed_tests_are_reported_as_such() {
        let text = Test::from_name("sdp_lat").unwrap_err().to_string();
        assert!(text.contains("no longer has SDP"), "{text}");
    }

    #[test]
    fn the_names_of_perftest_are_tests_over_rc() {
        for (alias, test) in ALIASES {
            assert_eq!(Test::from_name(alias), Ok(*test));
            assert!(Test::is_name(alias) && test.name().starts_with("rc_"));
        }
    }

    #[test]
    fn the_name_of_every_test_is_parsed_back() {
        for row in TESTS {
            assert_eq!(Test::from_name(row.name), Ok(row.test));
            assert_eq!(row.test.name(), row.name);
        }
    }
}
