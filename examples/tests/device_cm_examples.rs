//! The examples that connect by the connection manager, on real drivers, IPv4 and IPv6: each does
//! what it says, and those with a real counterpart speak with it in either role.

mod programs;

use std::net::{IpAddr, SocketAddr};

use ibverbs::{Device, device::TransportType};
use programs::{devices, example, run, start, tcp_port};
use test_support::lab::ip_addresses;
use test_support::process::Finished;

/// Every device with each of its addresses that is not link-local.
fn places() -> Vec<(Device, IpAddr)> {
    devices()
        .into_iter()
        .flat_map(|device| {
            let netdev = device
                .open()
                .expect("open")
                .netdev(1)
                .expect("a network interface");
            ip_addresses(&netdev)
                .into_iter()
                .map(move |ip| (device.clone(), ip))
        })
        .collect()
}

fn assert_success(ends: [Finished; 2]) -> [Finished; 2] {
    for ended in &ends {
        assert!(ended.success(), "{ended:?}");
    }
    ends
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rping_speaks_with_the_real_one_in_either_role() {
    let ours = example!("rping");
    for (_, ip) in places() {
        // -V has the real one compare what comes back with what it sent.
        for (server, client) in [(ours, "rping"), ("rping", ours), (ours, ours)] {
            let size = if ip.is_ipv4() { 64 } else { 16_384 };
            let port = tcp_port();
            let line = format!("-a {ip} -p {port} -v -C 5 -S {size}");
            let serving = start(server, &format!("-s {line}")).wait_for_cm_listener(port);
            let client = run(client, &format!("-c {line} -V"));
            let [server, client] = assert_success([serving.wait(), client]);
            for at in 0..5 {
                for (ended, says) in [(&server, "server ping data"), (&client, "ping data")] {
                    let wanted = format!("{says}: rdma-ping-{at}: ");
                    assert!(
                        ended.stdout.lines().any(|line| line.starts_with(&wanted)),
                        "{wanted}: {ended:?}"
                    );
                }
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rping_says_what_is_wrong() {
    let ours = example!("rping");
    for (_, ip) in places() {
        let ended = run(ours, &format!("-c -a {ip} -p {} -C 1", tcp_port()));
        assert!(
            !ended.success() && ended.stderr.contains("nothing listens on that port"),
            "{ended:?}"
        );
    }
    let ended = run(ours, "-a 10.99.0.1");
    assert!(
        !ended.success() && ended.stderr.contains("required"),
        "{ended:?}"
    );
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn echo_sends_back_what_it_is_told() {
    let ours = example!("echo");
    for (_, ip) in places() {
        let port = tcp_port();
        let address = SocketAddr::new(ip, port);
        let serving = start(ours, &format!("{address} --clients 2")).wait_for_cm_listener(port);
        for words in ["one two three", "four"] {
            let ended = run(ours, &format!("{address} {words}"));
            assert!(ended.success(), "{ended:?}");
            assert_eq!(
                ended
                    .stdout
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" "),
                words
            );
        }
        let ended = serving.wait();
        assert!(
            ended.success()
                && ended.stdout.contains("3 messages")
                && ended.stdout.contains("1 messages"),
            "{ended:?}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn one_thread_serves_many_clients() {
    let ours = example!("async_server");
    for (_, ip) in places() {
        let port = tcp_port();
        let address = SocketAddr::new(ip, port);
        let serving =
            start(ours, &format!("serve {address} --clients 32")).wait_for_cm_listener(port);
        let ended = run(ours, &format!("load {address} --clients 32 --rounds 10"));
        let [server, client] = assert_success([serving.wait(), ended]);
        assert!(
            server.stdout.contains("32 clients, 320 messages"),
            "{server:?}"
        );
        assert!(
            client
                .stdout
                .contains("32 clients, 320 messages there and back"),
            "{client:?}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn ud_chat_speaks_with_udaddy_in_either_role() {
    let ours = example!("ud_chat");
    for (device, ip) in places() {
        if device.transport() == TransportType::IWARP {
            let ended = run(ours, &format!("-s {ip}"));
            assert!(
                !ended.success() && ended.stderr.contains("iWARP has no datagrams"),
                "{ended:?}"
            );
            continue;
        }
        for (server, client) in [(ours, "udaddy"), ("udaddy", ours), (ours, ours)] {
            let serving = start(server, &format!("-b {ip} -C 5")).wait_for_cm_listener(7174);
            let client = run(client, &format!("-s {ip} -C 5"));
            let [server, client] = assert_success([serving.wait(), client]);
            if server.stdout.contains("hello") {
                assert!(
                    server.stdout.lines().any(|line| line == "hello 5"),
                    "{server:?}"
                );
                assert!(
                    client.stdout.lines().any(|line| line == "HELLO 5"),
                    "{client:?}"
                );
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn mc_chat_speaks_with_mckey_in_either_role() {
    let ours = example!("mc_chat");
    let group = "239.7.7.7";
    for (device, ip) in places().into_iter().filter(|(_, ip)| ip.is_ipv4()) {
        let line = format!("-m {group} -b {ip} -C 5");
        if device.transport() == TransportType::IWARP {
            let ended = run(ours, &line);
            assert!(
                !ended.success() && ended.stderr.contains("iWARP has no datagrams"),
                "{ended:?}"
            );
            continue;
        }
        for (listener, speaker) in [(ours, "mckey"), ("mckey", ours), (ours, ours)] {
            // Who listens says so when the group is joined: some of mckey, all of ours.
            let mut listening = if listener == ours {
                start(ours, &line).wait_for_output("listening")
            } else {
                start("stdbuf", &format!("-oL {listener} {line}")).wait_for_output("joined dgid")
            };
            // The real one sends, and leaves without waiting until it has left: what is on its way
            // then is lost. Of many some arrive, now and then too few: then it speaks
            // once more, until the listener has heard enough, or nothing for too long.
            let count = if speaker == "mckey" { 500 } else { 5 };
            let speaks = format!("-m {group} -b {ip} -C {count} -s");
            let mut spoken = run(speaker, &speaks);
            while speaker == "mckey" && spoken.success() && listening.is_running() {
                spoken = run(speaker, &speaks);
            }
            let [listener, _] = assert_success([listening.wait(), spoken]);
            if listener.stdout.contains("hello") {
                assert!(
                    listener.stdout.lines().any(|line| line == "hello 5"),
                    "{listener:?}"
                );
            }
        }
    }
}
