//! Messengers on an adapter that has a fault, which only a model of one has on request
//! (`nic-model`). A call must fail with an error that says what happened, or go on.

mod lab;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ibverbs::Result;
use lab::{TIMEOUT, one_endpoint_each};
use rdmacm::{Messenger, MessengerOptions};
use test_support::lab::{is_model, report_no_device};

/// Address of the server, in the process that has the fault.
const SERVER: &str = "RDMACM_TEST_FAULT_SERVER";
/// Time limit of each call of the process that has the fault.
const LIMIT: Duration = Duration::from_secs(3);
/// Messages in each direction. The fault happens among them.
const COUNT: u32 = 200;

/// Sends messages and receives their echoes.
fn ping(messenger: &mut Messenger) -> Result<()> {
    for number in 0..COUNT {
        messenger.send(&number.to_be_bytes(), LIMIT)?;
        let echo = messenger.recv(LIMIT)?.expect("an echo");
        assert_eq!(echo[..], number.to_be_bytes());
    }
    messenger.shutdown(LIMIT)
}

/// Sends messages back until the peer has sent its last one.
fn echo(messenger: &mut Messenger) -> Result<()> {
    // The end without the fault waits longer.
    while let Some(message) = messenger.recv(2 * LIMIT)? {
        messenger.send(&message, 2 * LIMIT)?;
    }
    Ok(())
}

/// Not a test: the process whose adapter has the fault.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn process_with_a_fault() {
    let Ok(address) = std::env::var(SERVER) else {
        return println!("device: none (helper process of the next tests)");
    };
    let address: SocketAddr = address.parse().expect("an address");
    let mut messenger =
        Messenger::connect(address, &MessengerOptions::new(), TIMEOUT).expect("connect");
    match ping(&mut messenger) {
        Ok(()) => println!("outcome: complete"),
        Err(error) => println!("outcome: {error}"),
    }
}

/// Runs a process whose adapter has the fault. Returns its outcome and that of the healthy end.
fn run_with(fault: &str) -> Option<(String, Result<()>)> {
    if !is_model() {
        report_no_device("only a model of an adapter has this fault");
        return None;
    }
    let endpoint = one_endpoint_each().remove(0);
    let listener = endpoint.listen();
    let mut process = Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "process_with_a_fault"])
        .args(["--nocapture", "--test-threads=1"])
        .env(SERVER, listener.local_addr().to_string())
        .env("NIC_MODEL_FAULT", format!("{fault}@60"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("another process");
    let request = listener.accept(Some(TIMEOUT)).expect("accept");
    let request = request.expect("a request in time");
    let mut messenger =
        Messenger::accept(request, &MessengerOptions::new(), TIMEOUT).expect("accept");
    let started = Instant::now();
    let healthy = echo(&mut messenger);
    // All of the output, because the process fails if nothing reads it.
    let lines: Vec<String> = BufReader::new(process.stdout.take().expect("piped"))
        .lines()
        .map(|line| line.expect("text"))
        .collect();
    let outcome = lines
        .iter()
        .find_map(|line| Some(line.split_once("outcome: ")?.1.to_owned()));
    assert!(process.wait().expect("ended").success());
    let outcome = outcome.expect("an outcome");
    println!("{fault}: {outcome}; healthy end: {healthy:?}");
    assert!(
        started.elapsed() < TIMEOUT,
        "{fault}: {:?}",
        started.elapsed()
    );
    Some((outcome, healthy))
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn messages_go_on_after_a_short_link_flap() {
    if let Some((outcome, healthy)) = run_with("link-flap") {
        assert_eq!(outcome, "complete");
        healthy.expect("complete");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn failed_adapters_end_in_an_error_at_both_ends() {
    for fault in ["link-down", "stuck", "fatal"] {
        if let Some((outcome, healthy)) = run_with(fault) {
            assert!(outcome.contains("mlx5_0"), "{fault}: {outcome}");
            assert!(outcome.contains("help:"), "{fault}: {outcome}");
            let error = healthy.expect_err("no more messages");
            assert!(error.help().is_some(), "{fault}: {error}");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn lost_completion_event_does_not_block_forever() {
    if let Some((outcome, healthy)) = run_with("lost-event") {
        let known = outcome == "complete" || outcome.contains("timed out");
        assert!(known, "{outcome}; {healthy:?}");
    }
}
