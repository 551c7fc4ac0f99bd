//! Builds the specification of a test from the options of the command line.

use base::device_id::DeviceId;
use base::error::{Error, Result};
use measure::spec::Spec;
use measure::spec::test::Test;

use super::command_line::Options;
use super::option;
use super::per_end::{End, value};

impl Options {
    /// Builds the specifications of `test` from these options: one, or one for each of several
    /// devices, whose sessions run at the same time.
    pub fn to_specs(&self, test: Test) -> Result<Vec<Spec>> {
        let spec = self.to_spec(test)?;
        if !test.moves_data() || !self.names_several_devices() {
            return Ok(vec![spec]);
        }
        let devices = |end| -> Vec<DeviceId> {
            let list = value(&self.id, end);
            list.map_or_else(Vec::new, |list| list.as_slice().to_vec())
        };
        let (local, remote) = (devices(End::Local), devices(End::Remote));
        if test.socket().is_some() {
            return Err(several(&format!("{}, a test over sockets,", test.name())));
        }
        if self.multicast.is_some() {
            return Err(several("--multicast (-g)"));
        }
        if self.server.qperf {
            return Err(several("--qperf"));
        }
        if remote.len() > 1 && remote.len() != local.len() {
            let text = format!(
                "number of devices: {} at this end, {} at the server",
                local.len(),
                remote.len()
            );
            return Err(Error::usage(text).with_help(
                "name as many devices of the server as of this end, or one: --id local=a,b,remote=c,d",
            ));
        }
        let sessions = (0..).zip(local).map(|(number, id)| {
            let mut session = spec.clone();
            let remote = remote.get(number).or(remote.first());
            let offset = u32::try_from(number).unwrap_or(0) * spec.threads;
            (session.client.id, session.client.cpu_offset) = (Some(id), Some(offset));
            (session.server.id, session.server.cpu_offset) = (remote.cloned(), Some(offset));
            session
        });
        Ok(sessions.collect())
    }

    /// Builds the specification of `test` from these options, with the first device of each list.
    ///
    /// # Errors
    /// A limit error if a value is out of range; see [`Spec::check`].
    pub fn to_spec(&self, test: Test) -> Result<Spec> {
        let mut spec = Spec::new(test);
        for set in option::all().filter_map(|option| option.entry.set) {
            set(self, &mut spec);
        }
        spec.check()?;
        Ok(spec)
    }
}

/// Returns the error of an option or a test that does not support several devices.
pub(super) fn several(what: &str) -> Error {
    Error::usage(format!("{what} does not support several devices"))
        .with_help("name one device with --id (-i)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn specs(test: Test, line: &str) -> Result<Vec<Spec>> {
        let args = std::iter::once("rperf").chain(line.split_whitespace());
        Options::try_parse_from(args).unwrap().to_specs(test)
    }

    /// Returns the devices of both ends of each session.
    fn pairs(line: &str) -> Vec<String> {
        let name = |id: &Option<DeviceId>| id.as_ref().map_or("-".into(), ToString::to_string);
        let specs = specs(Test::RcBw, line).unwrap().into_iter();
        specs
            .map(|s| format!("{} {}", name(&s.client.id), name(&s.server.id)))
            .collect()
    }

    #[test]
    fn each_local_device_has_a_session() {
        assert_eq!(pairs(""), ["- -"]);
        assert_eq!(pairs("--id a"), ["a a"]);
        assert_eq!(pairs("--id a,b:2"), ["a a", "b:2 b:2"]);
        assert_eq!(pairs("--id local=a,b"), ["a -", "b -"]);
        assert_eq!(pairs("--id a,b --id remote=c"), ["a c", "b c"]);
        assert_eq!(pairs("--id local=a,b,remote=c,d"), ["a c", "b d"]);
        assert_eq!(specs(Test::Conf, "--id a,b").unwrap().len(), 1);
        let specs = specs(Test::RcBw, "--id a,b,c --threads 4").unwrap();
        let offsets: Vec<_> = specs.iter().map(|s| s.client.cpu_offset).collect();
        assert_eq!(offsets, [Some(0), Some(4), Some(8)]);
    }

    #[test]
    fn unsupported_combinations_are_rejected() {
        for (test, line, expected) in [
            (
                Test::TcpBw,
                "--id a,b",
                "tcp_bw, a test over sockets, does not support several",
            ),
            (
                Test::UdBw,
                "--id a,b --multicast 2",
                "--multicast (-g) does not support several",
            ),
            (
                Test::RcBw,
                "--id a,b --qperf",
                "--qperf does not support several",
            ),
            (
                Test::RcBw,
                "--id a --id remote=b,c",
                "1 at this end, 2 at the server",
            ),
            (
                Test::RcBw,
                "--id a,b,c --id remote=d,e",
                "3 at this end, 2 at the server",
            ),
        ] {
            let error = specs(test, line).unwrap_err();
            assert_eq!(error.exit_status(), 2, "{line}");
            assert!(error.to_string().contains(expected), "{line}: {error}");
        }
    }
}
