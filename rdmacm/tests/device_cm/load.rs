//! Many connections on real drivers, one after the other and concurrently: none is lost or leaked.
//! The rate is compared with that of librdmacm's `cmtime`.
//!
//! `RDMACM_MANY` multiplies the numbers of connections. The default of 1 takes seconds under
//! emulation. The full test has 2,000 connections in a row and 256 concurrent ones:
//! `RDMACM_MANY=80`.

use ibverbs::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::{ConnectParams, Connecting, Connection, InProgress, Listener, ReadyRequest, Resolver};
use test_support::process::memory;

use crate::lab::{
    self, Endpoint, ResourcePool, TIMEOUT, assert_no_leaks, endpoints, leak_checked,
    one_endpoint_each,
};

fn scaled(count: usize) -> usize {
    count * std::env::var("RDMACM_MANY").map_or(1, |factor| factor.parse().expect("a number"))
}

/// Returns the resident memory of this process in KiB.
fn resident() -> u64 {
    memory(std::process::id(), "VmRSS") / 1024
}

/// Connects and disconnects `count` times, and returns the number of connections per second.
fn connect_sequentially(endpoint: &Endpoint, count: usize) -> f64 {
    let listener = endpoint.listen();
    let address = listener.local_addr();
    let (active_resources, passive_resources) = (endpoint.resources(), endpoint.resources());
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..count {
                let request = lab::request(&listener);
                let ready_request = request.with_qp(passive_resources.qp()).expect("INIT");
                let mut passive = ready_request
                    .accept(&ConnectParams::default(), TIMEOUT)
                    .expect("accept");
                let event = passive
                    .wait_event(Some(TIMEOUT))
                    .expect("wait")
                    .expect("an event or request in time");
                assert_eq!(event.event_type, rdmacm::CmEventType::DISCONNECTED);
            }
        });
        let started = Instant::now();
        for _ in 0..count {
            let route = Resolver::new(address)
                .timeout(TIMEOUT)
                .resolve()
                .expect("resolve");
            let ready = route.with_qp(active_resources.qp()).expect("INIT");
            let mut active = ready
                .connect(&ConnectParams::default(), TIMEOUT)
                .expect("connect");
            active.disconnect().expect("disconnect");
        }
        #[allow(clippy::cast_precision_loss, reason = "a small count")]
        let rate = count as f64 / started.elapsed().as_secs_f64();
        rate
    })
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn sequential_connections_leak_no_memory() {
    for endpoint in one_endpoint_each() {
        connect_sequentially(&endpoint, scaled(5));
        let before = resident();
        assert_no_leaks(&endpoint, || {
            let rate = connect_sequentially(&endpoint, scaled(25));
            println!(
                "{} {}: {} sequential connections, {rate:.0}/s",
                endpoint.name(),
                endpoint.ip,
                scaled(25)
            );
        });
        let after = resident();
        println!(
            "{}: {before} KiB resident before, {after} KiB after",
            endpoint.name()
        );
        assert!(
            after < before + 2048,
            "{before} KiB resident before, {after} KiB after"
        );
    }
}

/// Waits until a step can make progress, and returns which ones can.
fn wait_ready<P: InProgress>(steps: &[P], others: &[impl InProgress]) -> (Vec<bool>, Vec<bool>) {
    let fds = steps
        .iter()
        .map(AsFd::as_fd)
        .chain(others.iter().map(AsFd::as_fd));
    let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    poll(&mut fds, PollTimeout::from(1000_u16)).expect("poll");
    let mut ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
    let others_ready = ready.split_off(steps.len());
    (ready, others_ready)
}

/// Starts `count` connections on one thread, and completes them in any order.
fn connect_all(
    endpoint: &Endpoint,
    address: SocketAddr,
    pool: &ResourcePool,
    count: usize,
) -> Vec<Connection> {
    let mut resolving: Vec<_> = (0..count)
        .map(|_| {
            Resolver::new(address)
                .timeout(TIMEOUT)
                .start()
                .expect("start")
        })
        .collect();
    let (mut connecting, mut created) = (Vec::<Connecting>::new(), 0);
    let mut connected = Vec::new();
    let deadline = Instant::now() + TIMEOUT * 3;
    while connected.len() < count {
        assert!(
            Instant::now() < deadline,
            "{} of {count} on {}",
            connected.len(),
            endpoint.name()
        );
        let (resolvable, connectable) = wait_ready(&resolving, &connecting);
        let mut ready = connectable.into_iter();
        connecting.retain_mut(|step| {
            let result = if ready.next() == Some(true) {
                step.try_finish().expect("connect")
            } else {
                None
            };
            result
                .map(|connection| connected.push(connection))
                .is_none()
        });
        let mut ready = resolvable.into_iter();
        resolving.retain_mut(|step| {
            let result = if ready.next() == Some(true) {
                step.try_finish().expect("resolve")
            } else {
                None
            };
            let Some(route) = result else { return true };
            let ready = route.with_qp(pool.qp(created)).expect("INIT");
            created += 1;
            connecting.push(ready.start(&ConnectParams::default()).expect("connect"));
            false
        });
    }
    connected
}

/// Accepts `count` requests, and waits for the connections after all have started.
fn accept_all(listener: &Listener, pool: &ResourcePool, count: usize) -> Vec<Connection> {
    let mut accepting: Vec<_> = (0..count)
        .map(|number| {
            let request = lab::request(listener);
            let ready_request = request.with_qp(pool.qp(number)).expect("INIT");
            ReadyRequest::start(ready_request, &ConnectParams::default()).expect("accept")
        })
        .collect();
    accepting
        .drain(..)
        .map(|step| step.wait(Some(TIMEOUT)).expect("accept"))
        .collect()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn all_concurrent_connections_are_accepted() {
    let count = scaled(8).min(256);
    for endpoint in leak_checked(one_endpoint_each()) {
        // The backlog holds all concurrent requests. They are accepted late.
        let listener = Listener::bind(SocketAddr::new(endpoint.ip, 0), 256).expect("listen");
        let address = listener.local_addr();
        let (active_pool, passive_pool) = (
            ResourcePool::new(&endpoint, count),
            ResourcePool::new(&endpoint, count),
        );
        thread::scope(|scope| {
            let passive = scope.spawn(|| {
                thread::sleep(Duration::from_millis(300));
                accept_all(&listener, &passive_pool, count)
            });
            let started = Instant::now();
            let active = connect_all(&endpoint, address, &active_pool, count);
            let passive = passive.join().expect("passive side");
            println!(
                "{} {}: {count} concurrent connections in {:.0?}",
                endpoint.name(),
                endpoint.ip,
                started.elapsed()
            );
            assert_eq!((active.len(), passive.len()), (count, count));
            let mut ports: Vec<u16> = passive
                .iter()
                .map(|connection| connection.peer_addr().port())
                .collect();
            ports.sort_unstable();
            ports.dedup();
            assert_eq!(ports.len(), count, "one port per connection");
        });
    }
}

/// Connects, and tries again if the request is rejected.
fn connect_with_retries(endpoint: &Endpoint, address: SocketAddr) {
    let resources = endpoint.resources();
    let deadline = Instant::now() + TIMEOUT * 2;
    loop {
        let route = Resolver::new(address)
            .timeout(TIMEOUT)
            .resolve()
            .expect("resolve");
        let ready = route.with_qp(resources.qp()).expect("INIT");
        match ready.connect(&ConnectParams::default(), TIMEOUT) {
            Ok(_) => return,
            Err(error) => {
                println!("{}: {error}", endpoint.name());
                assert!(
                    error.rejection().is_some() || error.error().kind() == ErrorKind::TimedOut,
                    "{error}"
                );
                assert!(Instant::now() < deadline, "{error}");
            }
        }
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn requests_beyond_the_backlog_are_rejected_and_retried() {
    for endpoint in leak_checked(one_endpoint_each()) {
        if endpoint.is_iwarp() {
            // Closing a listener of Soft-iWARP that has rejected requests can stop the kernel
            // (docs/drivers.md).
            println!("{}: skipped", endpoint.name());
            continue;
        }
        let listener = Listener::bind(SocketAddr::new(endpoint.ip, 0), 1).expect("listen");
        let address = listener.local_addr();
        thread::scope(|scope| {
            let clients: Vec<_> = (0..5)
                .map(|_| scope.spawn(|| connect_with_retries(&endpoint, address)))
                .collect();
            thread::sleep(Duration::from_millis(200));
            while clients.iter().any(|client| !client.is_finished()) {
                let Some(request) = listener
                    .next_request(Some(Duration::from_millis(100)))
                    .expect("accept")
                else {
                    continue;
                };
                let resources = endpoint.resources();
                let accepted = request
                    .with_qp(resources.qp())
                    .map(|ready_request| ready_request.accept(&ConnectParams::default(), TIMEOUT));
                if let Ok(Ok(mut passive)) = accepted {
                    let _ = passive
                        .wait_event(Some(TIMEOUT))
                        .expect("wait")
                        .expect("an event or request in time");
                }
            }
        });
    }
}

/// Returns the time of one connection with `cmtime` in microseconds, as the sum of its steps, or
/// `None` if it failed.
fn cmtime(endpoint: &Endpoint, count: usize) -> Option<f64> {
    let port = (20_000 + std::process::id() % 10_000).to_string();
    let (ip, count) = (endpoint.ip.to_string(), count.to_string());
    let start = |role: &str| {
        let mut command = Command::new("cmtime");
        command.args(["-p", &port, "-c", &count, role, &ip]);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("cmtime of rdmacm-utils")
    };
    let mut server = start("-b");
    let started = Instant::now();
    let mut printed = String::new();
    // The client fails until the server listens.
    while !printed.contains("destroy") && started.elapsed() < TIMEOUT {
        thread::sleep(Duration::from_millis(100));
        printed = String::from_utf8_lossy(&start("-s").wait_with_output().expect("client").stdout)
            .into_owned();
    }
    server.kill().expect("kill");
    server.wait().expect("wait");
    println!("{printed}");
    let each = printed
        .lines()
        .filter(|line| line.contains(':'))
        .filter_map(|line| line.split_whitespace().last());
    let sum: f64 = each.filter_map(|last| last.parse::<f64>().ok()).sum();
    (sum > 0.0 && !printed.contains("failure")).then_some(sum)
}

/// Connects `count` times at once, and returns the microseconds per connection.
#[allow(clippy::cast_precision_loss, reason = "a small count")]
fn time_of_connections(endpoint: &Endpoint, count: usize) -> f64 {
    let listener = Listener::bind(SocketAddr::new(endpoint.ip, 0), 1024).expect("listen");
    let address = listener.local_addr();
    let pools = [(); 2].map(|()| ResourcePool::new(endpoint, count));
    thread::scope(|scope| {
        scope.spawn(|| {
            for mut connection in accept_all(&listener, &pools[0], count) {
                connection
                    .wait_event(Some(TIMEOUT))
                    .expect("wait")
                    .expect("an event or request in time");
            }
        });
        let started = Instant::now();
        drop(connect_all(endpoint, address, &pools[1], count));
        started.elapsed().as_secs_f64() * 1e6 / count as f64
    })
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_rate_is_comparable_with_cmtime() {
    let count = scaled(10).min(200);
    for endpoint in endpoints()
        .into_iter()
        .filter(|endpoint| endpoint.ip.is_ipv4())
    {
        // On a busy machine, a single attempt can be slow.
        let is_comparable = (0..5).any(|_| {
            let ours = time_of_connections(&endpoint, count);
            let theirs = cmtime(&endpoint, count);
            println!(
                "{}: {ours:.0} µs per connection, cmtime {theirs:.0?} µs",
                endpoint.name()
            );
            // A generous limit, because a handshake message lost by Soft-RoCE is repeated only
            // after more than a second. On Soft-iWARP, cmtime may fail to create its queue pairs
            // (docs/drivers.md, fault 2).
            theirs.is_none_or(|theirs| ours < theirs * 10.0 + 100_000.0)
        });
        assert!(is_comparable, "slower than cmtime");
    }
}
