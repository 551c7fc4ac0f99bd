//! Runs the examples that use the connection manager on real drivers, over IPv4 and IPv6. Examples
//! with a counterpart in librdmacm interoperate with it as client and as server.

mod programs;

use std::net::{IpAddr, SocketAddr};

use ibverbs::{Device, device::TransportType};
use programs::{devices, example, run, start, tcp_port};
use test_support::lab::ip_addresses;
use test_support::process::Finished;

/// Returns every device with each of its IP addresses, except link-local ones.
fn device_addresses() -> Vec<(Device, IpAddr)> {
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

fn assert_success(programs: [Finished; 2]) -> [Finished; 2] {
    for finished in &programs {
        assert!(finished.success(), "{finished:?}");
    }
    programs
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rping_interoperates_with_rping_of_librdmacm() {
    let ours = example!("rping");
    for (_, ip) in device_addresses() {
        // -V makes the C client verify the returned data.
        for (server, client) in [(ours, "rping"), ("rping", ours), (ours, ours)] {
            let size = if ip.is_ipv4() { 64 } else { 16_384 };
            let port = tcp_port();
            let options = format!("-a {ip} -p {port} -v -C 5 -S {size}");
            let server = start(server, &format!("-s {options}")).wait_for_cm_listener(port);
            let client = run(client, &format!("-c {options} -V"));
            let [server, client] = assert_success([server.wait(), client]);
            for number in 0..5 {
                for (finished, label) in [(&server, "server ping data"), (&client, "ping data")] {
                    let expected = format!("{label}: rdma-ping-{number}: ");
                    assert!(
                        finished
                            .stdout
                            .lines()
                            .any(|line| line.starts_with(&expected)),
                        "{expected}: {finished:?}"
                    );
                }
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rping_reports_errors() {
    let ours = example!("rping");
    for (_, ip) in device_addresses() {
        let finished = run(ours, &format!("-c -a {ip} -p {} -C 1", tcp_port()));
        assert!(
            !finished.success() && finished.stderr.contains("nothing listens on that port"),
            "{finished:?}"
        );
    }
    let finished = run(ours, "-a 10.99.0.1");
    assert!(
        !finished.success() && finished.stderr.contains("required"),
        "{finished:?}"
    );
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn echo_returns_each_word() {
    let ours = example!("echo");
    for (_, ip) in device_addresses() {
        let port = tcp_port();
        let address = SocketAddr::new(ip, port);
        let server = start(ours, &format!("{address} --clients 2")).wait_for_cm_listener(port);
        for words in ["one two three", "four"] {
            let finished = run(ours, &format!("{address} {words}"));
            assert!(finished.success(), "{finished:?}");
            assert_eq!(
                finished
                    .stdout
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" "),
                words
            );
        }
        let finished = server.wait();
        assert!(
            finished.success()
                && finished.stdout.contains("3 messages")
                && finished.stdout.contains("1 messages"),
            "{finished:?}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn async_server_serves_many_clients() {
    let ours = example!("async_server");
    for (_, ip) in device_addresses() {
        let port = tcp_port();
        let address = SocketAddr::new(ip, port);
        let server = start(ours, &format!("serve {address} --clients 32"));
        let server = server.wait_for_cm_listener(port);
        let client = run(ours, &format!("load {address} --clients 32 --rounds 10"));
        let [server, client] = assert_success([server.wait(), client]);
        assert!(
            server.stdout.contains("32 clients, 320 messages"),
            "{server:?}"
        );
        assert!(
            client.stdout.contains("32 clients, 320 round trips"),
            "{client:?}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn ud_chat_interoperates_with_udaddy() {
    let ours = example!("ud_chat");
    for (device, ip) in device_addresses() {
        if device.transport() == TransportType::IWARP {
            let finished = run(ours, &format!("-s {ip}"));
            assert!(
                !finished.success() && finished.stderr.contains("iWARP has no datagrams"),
                "{finished:?}"
            );
            continue;
        }
        for (server, client) in [(ours, "udaddy"), ("udaddy", ours), (ours, ours)] {
            let server = start(server, &format!("-b {ip} -C 5")).wait_for_cm_listener(7174);
            let client = run(client, &format!("-s {ip} -C 5"));
            let [server, client] = assert_success([server.wait(), client]);
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
fn mc_chat_interoperates_with_mckey() {
    let ours = example!("mc_chat");
    let group = "239.7.7.7";
    for (device, ip) in device_addresses()
        .into_iter()
        .filter(|(_, ip)| ip.is_ipv4())
    {
        let options = format!("-m {group} -b {ip} -C 5");
        if device.transport() == TransportType::IWARP {
            let finished = run(ours, &options);
            assert!(
                !finished.success() && finished.stderr.contains("iWARP has no datagrams"),
                "{finished:?}"
            );
            continue;
        }
        for (receiver, sender) in [(ours, "mckey"), ("mckey", ours), (ours, ours)] {
            // Both programs print a line when they have joined the group.
            let mut receiving = if receiver == ours {
                start(ours, &options).wait_for_output("listening")
            } else {
                start("stdbuf", &format!("-oL {receiver} {options}")).wait_for_output("joined dgid")
            };
            // mckey exits without waiting for its sends to complete, so the last datagrams are
            // lost. It therefore sends many, and runs again until the receiver has
            // received enough or has timed out.
            let count = if sender == "mckey" { 500 } else { 5 };
            let options = format!("-m {group} -b {ip} -C {count} -s");
            let mut sent = run(sender, &options);
            while sender == "mckey" && sent.success() && receiving.is_running() {
                sent = run(sender, &options);
            }
            let [receiver, _] = assert_success([receiving.wait(), sent]);
            if receiver.stdout.contains("hello") {
                assert!(
                    receiver.stdout.lines().any(|line| line == "hello 5"),
                    "{receiver:?}"
                );
            }
        }
    }
}
