//! `--auto`: the program's own tests as what is searched with.

use std::time::Duration;

use super::live::Live;
use super::print;
use crate::common::error::{Error, Result};
use crate::ribinfo::collect::rate::Rate;
use crate::ribinfo::collect::root::Root;
use crate::rperf::args::options::Options;
use crate::rperf::auto::verdict::PathLimits;
use crate::rperf::auto::{self, Runner};
use crate::rperf::control::client::{self, ServerAddr};
use crate::rperf::report::json::Document;
use crate::rperf::report::record::{Measured, Outcome, Record};
use crate::rperf::report::text::Format;
use crate::rperf::spec::Spec;
use crate::rperf::stats::monitor::MonitorOptions;
use crate::rperf::transport::verbs::VerbsBackend;

/// How long each measurement takes where no time is asked for.
const TIME: Duration = Duration::from_millis(300);
/// Time before each counts.
const WARM_UP: Duration = Duration::from_millis(50);

struct Tests<'a> {
    server_addr: &'a ServerAddr,
    live: Live,
    records: Vec<Record>,
    host: Option<&'a str>,
}

impl Runner for Tests<'_> {
    fn run(&mut self, spec: &Spec) -> Result<Measured> {
        let monitor_options = MonitorOptions {
            interval: None,
            observer: self.live.begin(spec),
        };
        let outcome = client::run(self.server_addr, spec, &VerbsBackend, monitor_options);
        self.live.end()?;
        match outcome? {
            Outcome::Measured(measured) => {
                let outcome = Outcome::Measured(measured.clone());
                self.records.push(Record {
                    test: spec.test,
                    host: self.host.map(str::to_owned),
                    outcome,
                });
                Ok(*measured)
            }
            other => Err(Error::protocol(format!("no measurement: {other:?}"))),
        }
    }
}

/// Searches and prints what was found; `words` are the user's own options, for the commands that
/// are suggested.
pub(super) fn run(
    host: Option<&str>,
    server_addr: &ServerAddr,
    base: &Spec,
    options: &Options,
    words: &[String],
) -> Result<()> {
    let format = Format::new(options);
    let mut spec = base.clone();
    if spec.tuning.warm_up.is_zero() {
        spec.tuning.warm_up = WARM_UP;
    }
    let most = options.tries.unwrap_or(auto::MOST);
    let live = Live::new(options, host, format.style, most as usize);
    let mut tests = Tests {
        server_addr,
        live,
        records: Vec::new(),
        host,
    };
    let path_limits = |m: &Measured| PathLimits {
        link: link(&m.local.device, m.local.port),
        one_host: host.is_none(),
    };
    let command = |test: &str| {
        let words = words.iter().map(|word| quoted(word));
        let all = ["rperf".to_owned()]
            .into_iter()
            .chain(words)
            .chain(host.map(quoted))
            .chain([test.to_owned()]);
        all.collect::<Vec<_>>().join(" ")
    };
    let advice = auto::run(
        &mut tests,
        &spec,
        options.time.unwrap_or(TIME),
        most,
        path_limits,
        command,
    )?;
    if options.json {
        let document = Document {
            auto: Some(advice),
            ..Document::new(tests.records)
        };
        return print(&document.render());
    }
    print(&advice.render(format.style))
}

/// What the link of a port carries in bits a second; none where the device is software, and its
/// rate a name.
fn link(device: &str, port: u8) -> Option<f64> {
    let root = Root::host();
    let directory = format!("/sys/class/infiniband/{device}");
    let rate = root
        .exists(&format!("{directory}/device"))
        .then(|| root.text(&format!("{directory}/ports/{port}/rate")))?;
    Rate::parse(&rate?).map(|rate| f64::from(rate.mbps) * 1e6)
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    if word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_./:=,+[]%".contains(c))
    {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_not_take_them() {
        assert_eq!(
            (quoted("--id=mlx5_0:1"), quoted("[fe80::1%eth0]")),
            ("--id=mlx5_0:1".into(), "[fe80::1%eth0]".into())
        );
        assert_eq!(quoted("a b'c"), "'a b'\\''c'");
    }
}
