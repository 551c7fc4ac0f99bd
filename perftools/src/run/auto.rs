//! `--auto`: the program's own tests as what is searched with.

use std::time::Duration;

use super::live::Live;
use super::print;
use crate::args::options::Options;
use crate::auto::verdict::Around;
use crate::auto::{self, Runner};
use crate::config::Spec;
use crate::control::client::{self, Target};
use crate::error::{Error, Result};
use crate::facts::rate::Rate;
use crate::facts::root::Root;
use crate::report::json::Document;
use crate::report::record::{Measured, Outcome, Record};
use crate::report::text::Format;
use crate::stats::watch::Watch;
use crate::transport::verbs::Verbs;

/// How long each measurement takes where no time is asked for.
const TIME: Duration = Duration::from_millis(300);
/// Time before each counts.
const WARM_UP: Duration = Duration::from_millis(50);

struct Tests<'a> {
    target: &'a Target,
    live: Live,
    records: Vec<Record>,
    host: Option<&'a str>,
}

impl Runner for Tests<'_> {
    fn run(&mut self, spec: &Spec) -> Result<Measured> {
        let watch = Watch {
            interval: None,
            audience: self.live.begin(spec),
        };
        let outcome = client::run(self.target, spec, &Verbs, watch);
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
    target: &Target,
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
        target,
        live,
        records: Vec::new(),
        host,
    };
    let around = |m: &Measured| Around {
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
        around,
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
