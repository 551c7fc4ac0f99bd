//! XRC tests between a server and a client in this process, on a fake device. The software drivers
//! have no XRC. These tests say nothing about real adapters.

use std::time::Duration;

use base::error::Result;
use base::interrupt::Interrupt;
use clap::Parser;
use fake_provider::{Fake, Profile};
use measure::spec::Spec;
use measure::spec::test::Test;
use measure::stats::monitor::MonitorOptions;
use measure::transport::verbs::VerbsBackend;
use perftools::rperf::args::command_line::Options;
use perftools::rperf::run::diagnosis::{RecordDiagnosis, outcome};
use report::record::{Measured, Outcome};
use session::client;
use session::connect::ServerAddr;
use session::rperf::rules::Rules;
use session::rperf::server::Server;

fn spec(fake: &Fake, test: Test, options: &str) -> Result<Spec> {
    let words = ["rperf", "--id", fake.name()]
        .into_iter()
        .chain(options.split_whitespace());
    Options::try_parse_from(words)
        .expect("options")
        .to_spec(test)
}

/// Runs a test between a server and a client in this process.
fn run(spec: &Spec) -> Result<Measured> {
    let mut server = Server::bind(Some([127, 0, 0, 1].into()), 0, Rules::default())
        .expect("server")
        .quiet();
    let (address, stopper) = (server.local_addr().expect("address"), server.stopper());
    std::thread::scope(|scope| {
        scope.spawn(move || server.run(&VerbsBackend, &RecordDiagnosis));
        let wait = Duration::from_secs(5);
        let target = ServerAddr {
            host: address.ip().to_string(),
            port: address.port(),
            wait,
            bind: None,
            token: None,
            qperf: false,
            interrupt: Interrupt::default(),
        };
        let answer = client::run(
            &target,
            spec,
            &VerbsBackend,
            &RecordDiagnosis,
            MonitorOptions::default(),
        );
        stopper.stop();
        match outcome(answer?) {
            Outcome::Measured(measured) => Ok(*measured),
            other => panic!("{other:?}"),
        }
    })
}

fn with_xrc(form: Profile) -> Fake {
    Fake::new(Profile {
        more_verbs: true,
        ..form
    })
}

const CLASSIC: Profile = Profile {
    extended_qp: false,
    extended_cq: false,
    ..Profile::RXE
};

#[test]
fn xrc_tests_deliver_all_bytes() {
    for form in [Profile::RXE, CLASSIC] {
        let fake = with_xrc(form);
        for (test, options) in [
            (Test::XrcBw, ""),
            (Test::XrcBw, "--qps 3 --recv-list 4 --post-list 5"),
            (Test::XrcBw, "--threads 2 --qps 2"),
            (Test::XrcBw, "--flip on --srq"),
            (Test::XrcBiBw, "--qps 2"),
            (Test::XrcLat, "--wait events"),
            (Test::XrcLat, "--wait poll"),
        ] {
            for content in ["", "--verify"] {
                let spec = spec(
                    &fake,
                    test,
                    &format!("--messages 203 --msg-size 3001 {options} {content}"),
                )
                .expect("a test");
                let measured = run(&spec)
                    .unwrap_or_else(|error| panic!("{test:?} {options} {content}: {error}"));
                let both = if test == Test::XrcBw { 1 } else { 2 };
                let [client, server] =
                    [&measured.local_stats, &measured.remote_stats].map(|side| side.received.msgs);
                assert_eq!(client + server, both * 203, "{test:?} {options} {content}");
                let verified = measured.local_stats.verified + measured.remote_stats.verified;
                assert_eq!(
                    verified,
                    if content.is_empty() {
                        0
                    } else {
                        both * 203 * 3001
                    },
                    "{test:?} {options}"
                );
            }
        }
        fake.assert_clean();
    }
}

#[test]
fn device_without_xrc_is_a_one_line_error() {
    let fake = Fake::new(Profile::RXE);
    let error = run(&spec(&fake, Test::XrcBw, "--messages 5").expect("a test"))
        .expect_err("it has none")
        .to_string();
    let expected = format!(
        "{} does not support XRC (extended reliable connections)",
        fake.name()
    );
    assert!(
        error.contains(&expected) && !error.contains('\n'),
        "{error}"
    );
    fake.assert_clean();
}

#[test]
fn xrc_with_rdma_cm_is_rejected_with_a_remedy() {
    let fake = with_xrc(Profile::RXE);
    let error = spec(&fake, Test::XrcLat, "--use-cm on")
        .expect_err("not by rdma_cm")
        .to_string();
    assert!(
        error.contains("not for XRC (extended reliable connections); help: remove --use-cm (-cm1)"),
        "{error}"
    );
    fake.assert_clean();
}
