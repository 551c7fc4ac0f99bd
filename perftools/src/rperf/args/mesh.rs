//! The command line of `rperf mesh`.

use std::path::PathBuf;
use std::time::Duration;

use base::device_id::DeviceId;
use base::error::{Error, Result};
use base::units::parse_time;
use clap::{CommandFactory, Parser};
use fleet::mesh::launch::StartMethod;
use fleet::mesh::schedule::MeshPattern;

use super::command_line::Options;
use super::option::OtherCommand;
use super::scope;
use super::split::{self, SplitArgs};
use super::{Invocation, TestRun, parse_options};

/// Options of `rperf mesh` beside those of its tests.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "rperf mesh",
    disable_help_flag = true,
    about = "Measure all pairs of hosts, and find slow links",
    override_usage = "rperf mesh [OPTIONS] [HOST[:PORT],…] TEST…"
)]
pub struct MeshArgs {
    /// Order of the measurements
    #[arg(long, value_name = "PATTERN", default_value = "pairs")]
    pub pattern: MeshPattern,
    /// RDMA devices to measure on each host, such as mlx5_0,mlx5_1, or `all` with an active port;
    /// only pairs of the same technology are measured [default: one, selected by address]
    #[arg(long, value_name = "DEV[:PORT],…|all", value_delimiter = ',')]
    pub devices: Vec<DeviceId>,
    /// Read the hosts from a file with one host, or HOST:PORT, per line
    #[arg(long, value_name = "FILE")]
    pub hosts_file: Option<PathBuf>,
    /// Start the servers, and stop them at the end; slurm also finds the hosts of the job [default:
    /// servers run already, with --mesh]
    #[arg(long, value_name = "HOW")]
    pub start: Option<StartMethod>,
    /// Command that starts a server [default: the one of --start]
    #[arg(long, value_name = "COMMAND", requires = "start")]
    pub launcher: Option<String>,
    /// Path of rperf on the hosts
    #[arg(long, value_name = "PATH", default_value = "rperf", requires = "start")]
    pub remote_rperf: String,
    /// Wait up to this time until all started servers respond
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "30")]
    pub start_timeout: Duration,
    /// A latency above this multiple of the minimum is slow
    #[arg(long, value_name = "FACTOR", default_value_t = 2.1)]
    pub slow_latency: f64,
    /// A bandwidth below this percentage of the maximum is slow
    #[arg(long, value_name = "PERCENT", default_value = "93", value_parser = percent)]
    pub slow_bandwidth: f64,
    /// Write the results to this file while they are measured
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Write a page with heat maps to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
The options of tests (`rperf --help options`) apply too, before the tests or between them. The hosts
run `rperf` servers with --mesh, unless --start starts them.

Examples:
    rperf mesh node1,node2,node3 rc_bw rc_lat
    rperf mesh --start ssh --hosts-file hosts --record mesh.json -t 1 rc_bw
    rperf mesh --start slurm --devices all --html mesh.html rc_bw
";

/// Returns the command with the text after its options.
pub(super) fn command() -> clap::Command {
    MeshArgs::command().after_help(AFTER_HELP)
}

/// Command line of `rperf mesh`.
#[derive(Clone, Debug)]
pub struct MeshInvocation {
    /// Host names, each with its port if one is given.
    pub hosts: Vec<String>,
    /// The tests in order, each with the options that apply to it.
    pub tests: Vec<TestRun>,
    /// All options of the tests together, for the output and the connection to servers.
    pub global: Options,
    /// Options of the mesh.
    pub mesh: MeshArgs,
}

/// Parses a percentage as a fraction.
fn percent(text: &str) -> std::result::Result<f64, String> {
    let number = text.trim_end_matches('%').trim_end().parse::<f64>();
    let number = number.ok().filter(|n| (0.0..=100.0).contains(n));
    number
        .map(|n| n / 100.0)
        .ok_or_else(|| format!("invalid percentage `{text}`; expected 0 to 100, such as 93"))
}

/// Returns the long name of an option of the mesh, and `true` if it takes a value.
fn mesh_option(arg: &str) -> Option<bool> {
    let name = arg.strip_prefix("--")?.split('=').next()?;
    let command = MeshArgs::command();
    let found = command
        .get_arguments()
        .find(|a| a.get_long() == Some(name))?;
    Some(found.get_action().takes_values())
}

/// Parses `mesh [OPTIONS] [HOST,…] TEST…`.
pub(super) fn parse(args: &[String]) -> Result<Invocation> {
    let (mut own, mut rest) = (vec!["rperf mesh".to_owned()], Vec::new());
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match mesh_option(word) {
            Some(takes_value) => {
                own.push(word.clone());
                if takes_value && !word.contains('=') {
                    own.extend(words.next().cloned());
                }
            }
            None => rest.push(word.clone()),
        }
    }
    let mesh = MeshArgs::try_parse_from(own).map_err(|e| crate::usage::error(&e))?;
    if mesh.slow_latency.is_nan() || mesh.slow_latency < 1.0 {
        return Err(Error::usage(format!(
            "--slow-latency {}: expected a factor of at least 1",
            mesh.slow_latency
        )));
    }
    let SplitArgs {
        host,
        tests,
        options,
    } = split::split(&rest)?;
    let global = parse_options(&options)?;
    reject_options(&options)?;
    scope::check_tests(&tests)?;
    if tests.is_empty() {
        return Err(Error::usage("no test to run")
            .with_help("name tests, as in `rperf mesh node1,node2,node3 rc_bw rc_lat`"));
    }
    let mut runs: Vec<TestRun> = Vec::new();
    for (test, options) in tests {
        if !test.moves_data() {
            return Err(Error::usage(format!(
                "{} is not a measurement",
                test.name()
            )));
        }
        let options = parse_options(&options)?;
        if options.names_several_devices() {
            return Err(
                Error::usage("a mesh does not support a list of devices in --id (-i)")
                    .with_help("name the devices with --devices"),
            );
        }
        runs.push(TestRun {
            test,
            options,
            parameters: Vec::new(),
        });
    }
    match (&host, &mesh.hosts_file) {
        (None, None) if mesh.start != Some(StartMethod::Slurm) => {
            return Err(Error::usage("no hosts").with_help(
                "name the hosts, as in `rperf mesh node1,node2 rc_bw`, or use --hosts-file",
            ));
        }
        (Some(_), Some(_)) => {
            return Err(Error::usage(
                "the hosts are given more than once; expected HOST,… or --hosts-file",
            ));
        }
        _ => {}
    }
    let hosts = host.map_or_else(Vec::new, |list| {
        let names = list.split(',').filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    });
    Ok(Invocation::Mesh(Box::new(MeshInvocation {
        hosts,
        tests: runs,
        global,
        mesh,
    })))
}

/// Rejects options that a mesh does not have.
fn reject_options(options: &[String]) -> Result<()> {
    scope::check_client(options)?;
    let mut words = options.iter();
    match words.find(|word| scope::is_not_in(word, OtherCommand::Mesh)) {
        Some(word) => Err(Error::usage(format!(
            "a mesh does not support --{}",
            scope::name(word)
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::spec::test::Test;

    fn mesh(line: &str) -> MeshInvocation {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match parse(&words) {
            Ok(Invocation::Mesh(mesh)) => *mesh,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn mesh_options_and_test_options_mix() {
        let m =
            mesh("-m 1K --pattern ring a,b:7,[::1]:8 -t 1 rc_bw --slow-bandwidth=50% -m 64 rc_lat");
        assert_eq!(m.hosts, ["a", "b:7", "[::1]:8"]);
        assert_eq!(
            (m.mesh.pattern, m.mesh.slow_bandwidth),
            (MeshPattern::Ring, 0.5)
        );
        assert_eq!(m.tests[0].options.msg_size.unwrap().0, 1024);
        assert_eq!(
            (m.tests[1].test, m.tests[1].options.msg_size.unwrap().0),
            (Test::RcLat, 64)
        );
        let m = mesh("--start slurm tcp_bw");
        assert!(m.hosts.is_empty() && m.mesh.start == Some(StartMethod::Slurm));
    }

    #[test]
    fn errors_of_mesh_name_the_remedy() {
        for (line, expected) in [
            ("a,b", "no test to run"),
            ("rc_bw", "no hosts"),
            ("a,b --hosts-file f rc_bw", "more than once"),
            ("a,b --pattern star rc_bw", "all-to-all"),
            ("a,b --repeat 3 rc_bw", "does not support --repeat"),
            ("a,b --bits rc_bw", "does not support --bits"),
            ("a,b -v rc_bw", "does not support --verbose"),
            ("a,b conf", "not a measurement"),
            ("a,b -i mlx5_0,mlx5_1 rc_bw", "with --devices"),
            ("a,b rc_lat --min-bw 90%", "is for bandwidth tests"),
            ("a,b --slow-bandwidth 193 rc_bw", "0 to 100"),
            ("a,b --slow-latency 0.5 rc_bw", "at least 1"),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let error = parse(&words).unwrap_err();
            assert_eq!(error.exit_status(), 2, "{line}");
            assert!(error.to_string().contains(expected), "{line}: {error}");
        }
    }
}
