//! Many connections, one after the other and at once: none lost, none left behind, on real drivers.
//! The rate of librdmacm's own `cmtime` is measured in the same run.
//!
//! `RDMACM_MANY` multiplies the counts; 1 if not given, which an emulated machine does in seconds.
//! The whole is 2,000 in a row and 256 at once: `RDMACM_MANY=80`.

mod lab;

use ibverbs::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use lab::{Ends, PATIENCE, Place, leaves_nothing, leaves_nothing_within, one_place_each, places};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::{ConnectParams, Connecting, Connection, InProgress, Listener, ReadyRequest, Resolver};

fn times(count: usize) -> usize {
    count * std::env::var("RDMACM_MANY").map_or(1, |many| many.parse().expect("a number"))
}

/// Kilobytes of this process that are resident.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("VmRSS");
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number")
}

/// Connects and disconnects so many times, and says how many a second.
fn in_a_row(place: &Place, count: usize) -> f64 {
    let listener = place.listen();
    let address = listener.local_addr();
    let (active_end, passive_end) = (place.end(), place.end());
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..count {
                let request = listener
                    .accept(Some(PATIENCE))
                    .expect("accept")
                    .expect("in time");
                let pending = request.with_qp(passive_end.qp()).expect("INIT");
                let mut passive = pending
                    .accept(&ConnectParams::default(), PATIENCE)
                    .expect("accept");
                let event = passive
                    .wait_event(Some(PATIENCE))
                    .expect("wait")
                    .expect("in time");
                assert_eq!(event.event_type, rdmacm::CmEventType::DISCONNECTED);
            }
        });
        let begun = Instant::now();
        for _ in 0..count {
            let route = Resolver::new(address)
                .timeout(PATIENCE)
                .resolve()
                .expect("resolve");
            let ready = route.with_qp(active_end.qp()).expect("INIT");
            let mut active = ready
                .connect(&ConnectParams::default(), PATIENCE)
                .expect("connect");
            active.disconnect().expect("disconnect");
        }
        #[allow(clippy::cast_precision_loss, reason = "a small count")]
        let rate = count as f64 / begun.elapsed().as_secs_f64();
        rate
    })
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn connections_in_a_row_are_all_there_and_leave_no_memory_behind() {
    for place in one_place_each() {
        in_a_row(&place, times(5));
        let before = resident();
        leaves_nothing(&place, || {
            let rate = in_a_row(&place, times(25));
            println!(
                "{} {}: {} in a row, {rate:.0}/s",
                place.name(),
                place.ip,
                times(25)
            );
        });
        let after = resident();
        println!("{}: {before} KiB, then {after} KiB resident", place.name());
        assert!(
            after < before + 2048,
            "{before} KiB, then {after} KiB resident"
        );
    }
}

/// Sleeps until one of the steps can go on, and says which can.
fn able<P: InProgress>(steps: &[P], others: &[impl InProgress]) -> (Vec<bool>, Vec<bool>) {
    let fds = steps
        .iter()
        .map(AsFd::as_fd)
        .chain(others.iter().map(AsFd::as_fd));
    let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    poll(&mut fds, PollTimeout::from(1000_u16)).expect("poll");
    let mut able: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
    let of_others = able.split_off(steps.len());
    (able, of_others)
}

/// Begins so many connections at once on one thread, and finishes them as they come.
fn connect_all(place: &Place, address: SocketAddr, ends: &Ends, count: usize) -> Vec<Connection> {
    let mut resolving: Vec<_> = (0..count)
        .map(|_| {
            Resolver::new(address)
                .timeout(PATIENCE)
                .start()
                .expect("start")
        })
        .collect();
    let (mut connecting, mut made) = (Vec::<Connecting>::new(), 0);
    let mut connected = Vec::new();
    let deadline = Instant::now() + PATIENCE * 3;
    while connected.len() < count {
        assert!(
            Instant::now() < deadline,
            "{} of {count} on {}",
            connected.len(),
            place.name()
        );
        let (resolvable, connectable) = able(&resolving, &connecting);
        let mut able = connectable.into_iter();
        connecting.retain_mut(|step| {
            let outcome = if able.next() == Some(true) {
                step.try_finish().expect("connect")
            } else {
                None
            };
            outcome
                .map(|connection| connected.push(connection))
                .is_none()
        });
        let mut able = resolvable.into_iter();
        resolving.retain_mut(|step| {
            let outcome = if able.next() == Some(true) {
                step.try_finish().expect("resolve")
            } else {
                None
            };
            let Some(route) = outcome else { return true };
            let ready = route.with_qp(ends.qp(made)).expect("INIT");
            made += 1;
            connecting.push(ready.start(&ConnectParams::default()).expect("connect"));
            false
        });
    }
    connected
}

/// Accepts so many as they come, and waits for each when all have begun.
fn accept_all(listener: &Listener, ends: &Ends, count: usize) -> Vec<Connection> {
    let mut accepting: Vec<_> = (0..count)
        .map(|number| {
            let request = listener
                .accept(Some(PATIENCE))
                .expect("accept")
                .expect("in time");
            let pending = request.with_qp(ends.qp(number)).expect("INIT");
            ReadyRequest::start(pending, &ConnectParams::default()).expect("accept")
        })
        .collect();
    accepting
        .drain(..)
        .map(|step| step.wait(Some(PATIENCE)).expect("accept"))
        .collect()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn many_at_once_are_all_accepted_by_a_listener_under_pressure() {
    let count = times(8).min(256);
    for place in one_place_each() {
        leaves_nothing(&place, || {
            // As many as come at once have room in the backlog; they are taken late.
            let listener = Listener::bind(SocketAddr::new(place.ip, 0), 256).expect("listen");
            let address = listener.local_addr();
            let (active_ends, passive_ends) = (Ends::new(&place, count), Ends::new(&place, count));
            thread::scope(|scope| {
                let passive = scope.spawn(|| {
                    thread::sleep(Duration::from_millis(300));
                    accept_all(&listener, &passive_ends, count)
                });
                let begun = Instant::now();
                let active = connect_all(&place, address, &active_ends, count);
                let passive = passive.join().expect("passive side");
                println!(
                    "{} {}: {count} at once in {:.0?}",
                    place.name(),
                    place.ip,
                    begun.elapsed()
                );
                assert_eq!((active.len(), passive.len()), (count, count));
                let mut ports: Vec<u16> = passive
                    .iter()
                    .map(|connection| connection.peer_addr().port())
                    .collect();
                ports.sort_unstable();
                ports.dedup();
                assert_eq!(ports.len(), count, "each its own");
            });
        });
    }
}

/// Connects, again and again if it is turned away.
fn connect_in_the_end(place: &Place, address: SocketAddr) {
    let end = place.end();
    let deadline = Instant::now() + PATIENCE * 2;
    loop {
        let route = Resolver::new(address)
            .timeout(PATIENCE)
            .resolve()
            .expect("resolve");
        let ready = route.with_qp(end.qp()).expect("INIT");
        match ready.connect(&ConnectParams::default(), PATIENCE) {
            Ok(_) => return,
            Err(error) => {
                println!("{}: {error}", place.name());
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
fn what_is_beyond_the_backlog_is_told_and_served_in_the_end() {
    for place in one_place_each() {
        if place.is_iwarp() {
            // A listener of Soft-iWARP that turned requests away can stop the kernel when it is
            // closed (ci/DRIVERS.md).
            println!("{}: left alone", place.name());
            continue;
        }
        leaves_nothing_within(&place, Duration::from_secs(30), || {
            let listener = Listener::bind(SocketAddr::new(place.ip, 0), 1).expect("listen");
            let address = listener.local_addr();
            thread::scope(|scope| {
                let clients: Vec<_> = (0..5)
                    .map(|_| scope.spawn(|| connect_in_the_end(&place, address)))
                    .collect();
                thread::sleep(Duration::from_millis(200));
                while clients.iter().any(|client| !client.is_finished()) {
                    let Some(request) = listener
                        .accept(Some(Duration::from_millis(100)))
                        .expect("accept")
                    else {
                        continue;
                    };
                    let end = place.end();
                    let accepted = request
                        .with_qp(end.qp())
                        .map(|pending| pending.accept(&ConnectParams::default(), PATIENCE));
                    if let Ok(Ok(mut passive)) = accepted {
                        let _ = passive
                            .wait_event(Some(PATIENCE))
                            .expect("wait")
                            .expect("in time");
                    }
                }
            });
        });
    }
}

/// Microseconds for each connection, over all its steps, as `cmtime` prints them; `None` where it
/// did not come through.
fn cmtime(place: &Place, count: usize) -> Option<f64> {
    let port = (20_000 + std::process::id() % 10_000).to_string();
    let (ip, count) = (place.ip.to_string(), count.to_string());
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
    let begun = Instant::now();
    let mut printed = String::new();
    // A server that is not up yet turns the client away.
    while !printed.contains("destroy") && begun.elapsed() < PATIENCE {
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

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_rate_is_of_the_order_of_cmtime() {
    let count = times(10).min(200);
    for place in places().into_iter().filter(|place| place.ip.is_ipv4()) {
        let listener = Listener::bind(SocketAddr::new(place.ip, 0), 1024).expect("listen");
        let address = listener.local_addr();
        let (active_ends, passive_ends) = (Ends::new(&place, count), Ends::new(&place, count));
        let ours = thread::scope(|scope| {
            scope.spawn(|| {
                let passive = accept_all(&listener, &passive_ends, count);
                for mut one in passive {
                    one.wait_event(Some(PATIENCE))
                        .expect("wait")
                        .expect("in time");
                }
            });
            let begun = Instant::now();
            drop(connect_all(&place, address, &active_ends, count));
            #[allow(clippy::cast_precision_loss, reason = "a small count")]
            let each = begun.elapsed().as_secs_f64() * 1e6 / count as f64;
            each
        });
        match cmtime(&place, count) {
            Some(theirs) => {
                println!(
                    "{}: {ours:.0} us a connection, cmtime {theirs:.0} us",
                    place.name()
                );
                // Generous: a message of the handshake that Soft-RoCE loses comes again after more
                // than a second.
                assert!(
                    ours < theirs * 10.0 + 100_000.0,
                    "{ours} us a connection, cmtime {theirs} us"
                );
            }
            // On Soft-iWARP it may fail to make its queue pairs (ci/DRIVERS.md, fault 2).
            None => println!(
                "{}: {ours:.0} us a connection, cmtime did not come through",
                place.name()
            ),
        }
    }
}
