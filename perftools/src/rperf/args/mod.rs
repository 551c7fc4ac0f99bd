//! The command line of `rperf`. `split` separates host, tests and options, `qperf` translates
//! the option names of qperf, and clap parses the result into [`command_line::Options`], which
//! makes a [`Spec`](measure::spec::Spec) for each test. [`run`](crate::rperf::run) executes
//! the resulting [`Invocation`].

pub mod command_line;
pub(crate) mod help;
pub(crate) mod limits;
pub(crate) mod mesh;
pub(crate) mod monitor;
mod option;
mod other_tools;
mod per_end;
mod perftest;
pub(crate) mod qperf;
mod records;
mod scope;
pub(crate) mod server;
pub(crate) mod sockets;
#[cfg(test)]
mod spec_tests;
pub(crate) mod split;
pub(crate) mod sweep;
mod test_class;
mod text_format;
mod to_spec;
mod tune;
pub(crate) mod tuning;
mod values;

use base::error::{Error, Result};
use base::shell;
use clap::Parser;

use command_line::Options;
use measure::spec::Parameter;
use measure::spec::test::Test;
use split::SplitArgs;

use crate::usage;
pub(super) use scope::acts_on;

/// The action that the command line selects.
#[derive(Clone, Debug)]
pub enum Invocation {
    /// Print this text, such as the help, and exit.
    Print(String),
    /// Run a server.
    Server(Box<Options>),
    /// Compare the records of two runs.
    Compare {
        /// File with the records of the old run.
        old: String,
        /// File with the records of the new run.
        new: String,
        /// Largest relative change of a figure that counts as no change, such as 0.05, if given.
        threshold: Option<f64>,
    },
    /// Find the best settings and the bottleneck.
    Tune {
        /// Host name or address of the server; `None` to run both ends on this host.
        host: Option<String>,
        /// Given options, which the suggested commands repeat.
        words: Vec<String>,
        /// All options.
        options: Box<Options>,
    },
    /// Measure all pairs of many hosts.
    Mesh(Box<mesh::MeshInvocation>),
    /// Probe the paths to other hosts until a signal arrives.
    Monitor(Box<monitor::MonitorArgs>),
    /// Write an HTML page with the records of these files.
    Report {
        /// The files with the records: the name of the run, if one was given, and the path.
        files: Vec<(Option<String>, String)>,
        /// File to write the page to; `None` for standard output.
        output: Option<String>,
    },
    /// Run tests against `host`, or with both ends on this host.
    Client {
        /// Host name or address of the server; `None` to run both ends on this host.
        host: Option<String>,
        /// The tests in order, each with the options that apply to it.
        tests: Vec<TestRun>,
        /// All options together. Settings of the whole run, such as the output and the port of the
        /// server, are read from here.
        global: Box<Options>,
    },
}

/// A test on the command line, or one run of a sweep.
#[derive(Clone, Debug)]
pub struct TestRun {
    /// The test.
    pub test: Test,
    /// Options that apply to it.
    pub options: Options,
    /// Parameters that a sweep set for this run.
    pub parameters: Vec<Parameter>,
}

/// Checks a command line, and the specification of each of its tests.
fn check(words: &[&str]) -> Result<()> {
    if let Invocation::Client { tests, .. } = parse(words.iter().copied())? {
        for run in tests {
            run.options.to_specs(run.test)?;
        }
    }
    Ok(())
}

/// Parses the command line. `args` does not include the name of the program.
///
/// # Errors
/// Returns a usage error, whose exit status is 2, if the command line is invalid.
pub fn parse<I, S>(args: I) -> Result<Invocation>
where
    I: IntoIterator<Item = S>,
    S: Into<String>,
{
    let args: Vec<String> = args.into_iter().map(Into::into).collect();
    if let Some(text) = help::requested_text(&args)? {
        return Ok(Invocation::Print(text));
    }
    match args.split_first().map(|(word, rest)| (word.as_str(), rest)) {
        Some(("compare", rest)) => return records::compare(rest),
        Some(("report", rest)) => return records::report(rest),
        Some(("mesh", rest)) => return mesh::parse(rest),
        Some(("monitor", rest)) => return monitor::parse(rest),
        Some(("tune", rest)) => return tune::parse(rest),
        Some(("qperf", rest)) if !rest.first().is_some_and(|word| Test::is_name(word)) => {
            return Err(
                Error::usage("qperf is not a part of the command line of rperf").with_help(
                    format!(
                        "run `{}`",
                        shell::join(["rperf"].into_iter().chain(rest.iter().map(String::as_str)))
                    ),
                ),
            );
        }
        _ => {}
    }
    perftest::reject(&args, check)?;
    let SplitArgs {
        host,
        tests,
        options,
    } = split::split(&args)?;
    let global = parse_options(&options)?;
    if tests.is_empty() {
        return parse_without_tests(host, &options, global);
    }
    scope::check_client(&options)?;
    if host.is_none() {
        scope::check_one_host(&options)?;
    }
    scope::check_tests(&tests)?;
    let mut all = Vec::new();
    for (test, options) in tests {
        for sweep_values in sweep::runs(&parse_options(&options)?)? {
            let parameters = sweep::parameters(&sweep_values);
            scope::check_tests(&[(test, sweep_values.clone())])?;
            let options: Vec<String> = options.iter().cloned().chain(sweep_values).collect();
            all.push(TestRun {
                test,
                options: parse_options(&options)?,
                parameters,
            });
        }
    }
    let times = usize::from(global.tuning.repeat.unwrap_or(1));
    if all.len() * times > sweep::MAX_RUNS {
        return Err(Error::usage(format!(
            "command line asks for {} runs: the maximum is {}",
            all.len() * times,
            sweep::MAX_RUNS
        )));
    }
    let tests = std::iter::repeat_n(all, times).flatten().collect();
    Ok(Invocation::Client {
        host,
        tests,
        global: Box::new(global),
    })
}

fn parse_without_tests(
    host: Option<String>,
    options: &[String],
    global: Options,
) -> Result<Invocation> {
    if let Some(host) = host {
        let help = match Test::suggest(&host) {
            Some(test) => format!("did you mean the test {test}?"),
            None => format!(
                "name a test, as in `rperf {host} rc_bw rc_lat`; `rperf --help tests` lists the tests"
            ),
        };
        return Err(Error::usage(format!(
            "no test to run: `{host}` was taken as the name of the server's host"
        ))
        .with_help(help));
    }
    scope::check_server(options)?;
    Ok(Invocation::Server(Box::new(global)))
}

/// Parses options in their long form with clap.
fn parse_options(options: &[String]) -> Result<Options> {
    Options::try_parse_from(std::iter::once("rperf").chain(options.iter().map(String::as_str)))
        .map_err(|error| usage::error(&error))
}

#[cfg(test)]
mod tests {
    use super::values::Detail;
    use super::*;
    use base::units::Size;
    use measure::spec::Side;
    use measure::spec::modes::{Cm, Wait};
    use std::time::Duration;

    fn client(line: &str) -> (Option<String>, Vec<(Test, Options)>, Options) {
        match parse(line.split_whitespace()) {
            Ok(Invocation::Client {
                host,
                tests,
                global,
            }) => {
                let tests = tests.into_iter().map(|run| (run.test, run.options));
                (host, tests.collect(), *global)
            }
            other => panic!("{line}: {other:?}"),
        }
    }

    fn error(line: &str) -> String {
        match parse(line.split_whitespace()) {
            Err(error) => {
                assert_eq!(error.exit_status(), 2);
                error.to_string()
            }
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn options_apply_to_the_tests_that_follow() {
        let (host, tests, _) = client("-m 1K node -t 5 rc_bw -m 2K rc_lat");
        assert_eq!(host.as_deref(), Some("node"));
        assert_eq!(tests[0].0, Test::RcBw);
        assert_eq!(tests[0].1.msg_size, Some(Size(1024)));
        assert_eq!(tests[0].1.time, Some(Duration::from_secs(5)));
        assert_eq!(tests[1].1.msg_size, Some(Size(2048)));
        assert_eq!(tests[1].1.time, Some(Duration::from_secs(5)));
    }

    #[test]
    fn options_after_the_last_test_apply_to_all() {
        let (_, tests, _) = client("node rc_bw rc_lat -m 4K -n 10");
        assert!(
            tests
                .iter()
                .all(|t| t.1.msg_size == Some(Size(4096)) && t.1.messages == Some(10))
        );
    }

    #[test]
    fn output_options_are_global_in_any_position() {
        for line in [
            "--json node rc_bw rc_lat",
            "node rc_bw --json rc_lat",
            "node rc_bw rc_lat --json",
        ] {
            assert!(client(line).2.json, "{line}");
        }
    }

    #[test]
    fn the_names_of_perftest_are_tests() {
        let (host, tests, _) = client("node write_bw read_lat");
        assert_eq!(host.as_deref(), Some("node"));
        let tests: Vec<Test> = tests.into_iter().map(|run| run.0).collect();
        assert_eq!(tests, [Test::RcRdmaWriteBw, Test::RcRdmaReadLat]);
    }

    #[test]
    fn the_name_of_a_test_is_not_a_host() {
        let (host, tests, _) = client("rc_bw rc_lat");
        assert_eq!((host, tests.len()), (None, 2));
        let (host, ..) = client("-H rc_bw rc_lat");
        assert_eq!(host.as_deref(), Some("rc_bw"));
    }

    #[test]
    fn qperf_option_names_are_translated() {
        let (_, tests, global) = client(
            "-cm1 -cp1 -i rxe0:1 -ri siw0 -to 9 -e 5 -ub -uu -vvs -lp 4000 -ws 1 node rc_bw",
        );
        let o = &tests[0].1;
        assert_eq!(o.use_cm, Some(Cm::On));
        let spec = o.to_spec(tests[0].0).unwrap();
        let id = |side: Side| side.id.map(|id| id.to_string());
        assert_eq!(
            (spec.client.wait, spec.client.timeout),
            (Wait::Poll, Duration::from_secs(9))
        );
        assert_eq!(id(spec.client).as_deref(), Some("rxe0:1"));
        assert_eq!(id(spec.server).as_deref(), Some("siw0"));
        assert_eq!(
            (
                global.precision,
                global.bits,
                global.unify_units,
                global.verbose.as_slice()
            ),
            (Some(5), true, true, &[Detail::MoreStat][..])
        );
        assert_eq!(
            (global.port, global.wait_server),
            (4000, Some(Duration::from_secs(1)))
        );
        let (_, tests, _) = client("--use_cm 0 --cq_poll 0 -m=1K --msg_size 2K -vC node rc_lat");
        let o = &tests[0].1;
        assert_eq!(
            (o.use_cm, o.msg_size, o.verbose.as_slice()),
            (Some(Cm::Off), Some(Size(2048)), &[Detail::MoreConf][..])
        );
        let spec = o.to_spec(tests[0].0).unwrap();
        assert_eq!(spec.client.wait, Wait::Events);
    }

    #[test]
    fn an_empty_command_line_runs_a_server() {
        assert!(matches!(
            parse(Vec::<String>::new()),
            Ok(Invocation::Server(_))
        ));
        assert!(matches!(parse(["-lp", "5"]), Ok(Invocation::Server(o)) if o.port == 5));
    }

    #[test]
    fn errors_name_the_cause_and_the_remedy() {
        for (line, expected) in [
            ("node rc_bv", "did you mean rc_bw"),
            ("rc_write_bw", "did you mean the test rc_rdma_write_bw?"),
            ("rc_wrte_bw node", "did you mean the test rc_rdma_write_bw?"),
            ("node rc_read_bw", "did you mean rc_rdma_read_bw?"),
            ("qperf node tcp_bw", "run `rperf node tcp_bw`"),
            ("node rc_bw --iterations 5", "did you mean --messages?"),
            ("node rc_bw --message_size 5", "did you mean --msg-size?"),
            ("node rc_bw --device rxe0", "did you mean --id?"),
            ("mesh --hostfile f rc_bw", "--hosts-file of `rperf mesh`"),
            ("rc_bv", "did you mean the test rc_bw"),
            ("node", "no test to run"),
            ("-m 1K", "is an option of a client"),
            ("node rc_bw -m", "-m needs a value"),
            ("node rc_bw -m 1x", "not a size"),
            ("node rc_bw --msgsize 1", "--msg-size"),
            ("node rc_bw -zzz", "-zzz"),
            ("node rc_bw -ap 2", "path migration"),
            ("node rc_bw -sr 7", "2.5, 5, 10"),
            ("node rc_bw -D", "has no debug output"),
            ("-P 4 node tcp_bw", "the former -P of qperf is --wait"),
            (
                "node rc_bw --rate-limit 10",
                "10Mb/s (bits) or 10MB/s (bytes)",
            ),
            (
                "node rc_lat --min-bw 90%",
                "--min-bw has no effect on rc_lat: it is for bandwidth tests",
            ),
            ("--min-bw 90%", "is an option of a client"),
            ("node sdp_bw", "Linux no longer has SDP"),
            (
                "node rc_bw --allow ::1/128",
                "--allow is an option of the server",
            ),
            ("node rc_bw --flow-label 1048576", "0..=1048575"),
            ("node rc_bw --retry-count 8", "0..=7"),
            ("node rc_bw -H other rc_lat", "two hosts"),
            ("node rc_bw -n -5", "-5"),
            ("node rc_bw -cm maybe", "maybe"),
            ("-i a,b,a node rc_bw", "device a is in the list twice"),
            ("-i a,,b node rc_bw", "not a device name"),
            (
                "tune -i a,b node",
                "`rperf tune` does not support several devices",
            ),
            ("--help nothing", "no help topic named `nothing`"),
        ] {
            let text = error(line);
            assert!(text.contains(expected), "{line}: {text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_words_cause_no_panic(words in proptest::collection::vec("-{0,2}[a-z:=0-9_]{0,6}", 0..6)) {
            let _ = parse(words);
        }
    }
}
