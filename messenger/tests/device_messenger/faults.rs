//! Messengers and connections on an adapter that has a fault. A call must fail with an error that
//! says what happened, or go on. Most faults exist only on a model of an adapter (`nic-model`).

use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{ErrorKind, PortState, Result};
use messenger::{GroupOptions, Messenger, MessengerGroup, MessengerOptions};
use rdmacm::{ConnectParams, Resolver};
use test_support::lab::{LinkDown, is_model, netdev, report_no_device};
use test_support::process;

use crate::lab::{Endpoint, TIMEOUT, one_endpoint_each};

/// Address of the server, in the process that has the fault.
const SERVER: &str = "MESSENGER_TEST_FAULT_SERVER";
/// Type of the messenger in that process.
const MESSENGER: &str = "MESSENGER_TEST_FAULT_MESSENGER";
/// Time limit of the exchange in the process that has the fault. Its calls share the limit: after
/// an adapter has lost a completion event, every wait lasts until its own.
const LIMIT: Duration = Duration::from_secs(5);
/// Messages in each direction. The fault happens among them.
const COUNT: u32 = 200;

/// Sends messages and receives their echoes.
fn ping(messenger: &mut Messenger) -> Result<()> {
    let until = Instant::now() + LIMIT;
    let remaining = || until.saturating_duration_since(Instant::now());
    for number in 0..COUNT {
        messenger.send(&number.to_be_bytes(), remaining())?;
        let echo = messenger.recv(remaining())?.expect("an echo");
        assert_eq!(echo[..], number.to_be_bytes());
    }
    messenger.shutdown(remaining())
}

/// Sends messages back until the peer has sent its last one.
fn echo(messenger: &mut Messenger) -> Result<()> {
    // The end without the fault waits longer.
    while let Some(message) = messenger.recv(2 * LIMIT)? {
        messenger.send(&message, 2 * LIMIT)?;
    }
    Ok(())
}

/// Like [`ping`], on tokio. The time limit is that of the application.
#[cfg(feature = "tokio")]
async fn ping_async(address: SocketAddr) -> Result<()> {
    use messenger::AsyncMessenger;
    use tokio::time::timeout;

    let options = MessengerOptions::new();
    let connecting = AsyncMessenger::connect(address, &options);
    let connected = timeout(TIMEOUT, connecting).await.expect("in time");
    let mut messenger = connected.expect("connect");
    let exchange = async {
        for number in 0..COUNT {
            messenger.send(&number.to_be_bytes()).await?;
            let echo = messenger.recv().await?.expect("an echo");
            assert_eq!(echo[..], number.to_be_bytes());
        }
        messenger.shutdown().await
    };
    match timeout(LIMIT, exchange).await {
        Ok(outcome) => outcome,
        Err(elapsed) => {
            messenger.get_ref().check_device()?;
            panic!("{elapsed}, and the device has no fault");
        }
    }
}

fn ping_from(address: SocketAddr, messenger: &str) -> Result<()> {
    #[cfg(feature = "tokio")]
    if messenger == "async" {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("runtime");
        return runtime.block_on(ping_async(address));
    }
    let group = (messenger == "group").then(|| {
        let pd = one_endpoint_each()[0].context.alloc_pd().expect("domain");
        MessengerGroup::new(&pd, &GroupOptions::new().connections(4)).expect("group")
    });
    let mut options = MessengerOptions::new();
    if let Some(group) = &group {
        options = options.group(group);
    }
    let mut messenger = Messenger::connect(address, &options, TIMEOUT).expect("connect");
    ping(&mut messenger)
}

/// Not a test: the process whose adapter has the fault.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn process_with_a_fault() {
    let Ok(address) = std::env::var(SERVER) else {
        return println!("device: none (helper process of the next tests)");
    };
    let messenger = std::env::var(MESSENGER).expect("a type");
    match ping_from(address.parse().expect("an address"), &messenger) {
        Ok(()) => println!("outcome: complete"),
        Err(error) => println!("outcome: {error}"),
    }
}

/// Runs a process whose adapter has the fault. Returns its outcome and that of the healthy end.
fn run_with(fault: &str, kind: &str) -> Option<(String, Result<()>)> {
    if !is_model() {
        report_no_device("only a model of an adapter has this fault");
        return None;
    }
    let endpoint = one_endpoint_each().remove(0);
    let listener = endpoint.listen();
    let mut process = process::ignored_test("faults::process_with_a_fault")
        .env(SERVER, listener.local_addr().to_string())
        .env(MESSENGER, kind)
        .env("NIC_MODEL_FAULT", format!("{fault}@60"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("another process");
    let request = listener.next_request(Some(TIMEOUT)).expect("accept");
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
    println!("{fault}, {kind}: {outcome}; healthy end: {healthy:?}");
    assert!(
        started.elapsed() < TIMEOUT,
        "{fault}: {:?}",
        started.elapsed()
    );
    Some((outcome, healthy))
}

/// Checks the errors of both ends after a fault. `cause` is the name of the fault.
fn assert_named(fault: &str, messenger: &str, cause: &str, help: &str) {
    let Some((outcome, healthy)) = run_with(fault, messenger) else {
        return;
    };
    assert!(outcome.contains(cause), "{fault}, {messenger}: {outcome}");
    assert!(outcome.contains(help), "{fault}, {messenger}: {outcome}");
    assert!(!outcome.contains("application"), "{fault}: {outcome}");
    // The healthy end cannot know the cause.
    let error = healthy.expect_err("no more messages");
    assert!(error.help().is_some(), "{fault}: {error}");
    assert!(!error.message().contains(cause), "{fault}: {error}");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn messages_go_on_after_a_short_link_flap() {
    for messenger in ["blocking", "group"] {
        if let Some((outcome, healthy)) = run_with("link-flap", messenger) {
            assert_eq!(outcome, "complete");
            healthy.expect("complete");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn port_that_goes_down_is_named_at_its_end() {
    for messenger in messengers() {
        let cause = "port 1 of mlx5_0 is DOWN";
        assert_named("link-down", messenger, cause, "ip link set");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn failed_adapter_is_named_at_its_end() {
    for messenger in messengers() {
        let cause = "the adapter mlx5_0 does not work";
        assert_named("fatal", messenger, cause, "dmesg");
    }
}

/// The adapter of this side reports nothing, so the error says what is known.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn requests_of_a_stuck_adapter_are_counted() {
    let cause = "timed out; unfinished requests of this side: 1";
    assert_named("stuck", "blocking", cause, "dmesg");
}

/// Returns the types of messengers. A future has no time limit of its own.
fn messengers() -> &'static [&'static str] {
    if cfg!(feature = "tokio") {
        &["blocking", "group", "async"]
    } else {
        &["blocking", "group"]
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn lost_completion_event_does_not_block_forever() {
    if let Some((outcome, healthy)) = run_with("lost-event", "blocking") {
        let known = outcome == "complete" || outcome.contains("timed out");
        assert!(known, "{outcome}; {healthy:?}");
    }
}

/// Connects two messengers of this process.
fn pair(endpoint: &Endpoint) -> (Messenger, Messenger) {
    let listener = endpoint.listen();
    let address = listener.local_addr();
    thread::scope(|scope| {
        let options = MessengerOptions::new();
        let active = scope.spawn(move || Messenger::connect(address, &options, TIMEOUT));
        let request = listener.next_request(Some(TIMEOUT)).expect("accept");
        let request = request.expect("a request in time");
        let passive = Messenger::accept(request, &options, TIMEOUT).expect("accept");
        (active.join().expect("thread").expect("connect"), passive)
    })
}

fn assert_contains(text: &impl Display, part: &str) {
    let text = text.to_string();
    assert!(text.contains(part), "no `{part}` in: {text}");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn port_of_a_driver_that_is_down_is_named() {
    for endpoint in one_endpoint_each() {
        let (mut active, passive) = pair(&endpoint);
        active.check_device().expect("no fault");
        let error = active.recv(Duration::ZERO).expect_err("no message");
        assert_contains(&error, "timed out; help: check that the peer");
        let down = LinkDown::new(&netdev(endpoint.name()));
        // The result of the query before is used for one second.
        let error = active.recv(Duration::from_millis(1500));
        let error = error.expect_err("no message");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        let cause = format!("port 1 of {} is DOWN", endpoint.name());
        assert_contains(&error, &cause);
        let error = passive.check_device().expect_err("the port is down");
        assert_eq!(error.kind(), ErrorKind::PortDown, "{error}");
        assert_contains(&error, &cause);
        drop(down);
        let until = Instant::now() + TIMEOUT;
        while active.check_device().is_err() {
            assert!(Instant::now() < until, "{cause}, and does not recover");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn port_that_is_down_is_named_when_no_peer_answers() {
    for endpoint in one_endpoint_each() {
        if !endpoint.is_iwarp() {
            // docs/drivers.md, fault 59: nothing could connect to the device afterwards.
            continue;
        }
        let listener = endpoint.listen();
        let route = Resolver::new(listener.local_addr()).resolve();
        let resources = endpoint.resources();
        let mut ready = route
            .and_then(|it| it.with_qp(resources.qp()))
            .expect("ready");
        resources.receive_on(ready.qp_mut());
        let down = LinkDown::new(&netdev(endpoint.name()));
        let outcome = ready.connect(&ConnectParams::default(), Duration::from_secs(1));
        let error = outcome.expect_err("no connection");
        drop(down);
        assert_contains(&error, &format!("port 1 of {} is DOWN", endpoint.name()));
        assert_contains(&error, "help: bring its network interface up");
        let until = Instant::now() + TIMEOUT;
        while endpoint.context.query_port(1).expect("query").state != PortState::ACTIVE {
            assert!(
                Instant::now() < until,
                "{} does not recover",
                endpoint.name()
            );
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn stopped_queue_pair_is_named() {
    for endpoint in one_endpoint_each() {
        if endpoint.is_iwarp() {
            // The error state ends the connection there, which is an error of its own.
            continue;
        }
        let (mut active, _passive) = pair(&endpoint);
        let stopped = active.with_qp(ibverbs::QueuePair::to_error);
        stopped.expect("connected").expect("error state");
        let error = active.recv(Duration::from_millis(100));
        let error = error.expect_err("no message");
        assert_contains(&error, &format!("of {} is in state ERR", endpoint.name()));
        let error = active.check_device().expect_err("stopped");
        assert_eq!(error.kind(), ErrorKind::WrongState, "{error}");
    }
}
