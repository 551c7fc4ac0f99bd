//! Runs the examples that use the connection manager on real drivers, over IPv4 and IPv6. Examples
//! with a counterpart in librdmacm interoperate with it as client and as server.

mod programs;

use std::net::{IpAddr, SocketAddr};

use ibverbs::{Device, device::TransportType};
use programs::{assert_success, devices, example, run, start, stop, tcp_port};
use test_support::lab::ip_addresses;
use test_support::process::Process;

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

/// Returns one address of each device, for tests that do not depend on the kind of address.
fn one_address_each() -> Vec<(Device, IpAddr)> {
    let is_chosen = |(device, ip): &(Device, IpAddr)| {
        let is_iwarp = device.transport() == TransportType::IWARP;
        ip.is_ipv4() == is_iwarp
    };
    let mut addresses = device_addresses();
    addresses.retain(is_chosen);
    addresses
}

/// Starts an example as a server and waits until it listens.
fn serve(program: &str, role: &str, address: SocketAddr) -> Process {
    start(program, &format!("{role} {address}")).wait_for_cm_listener(address.port())
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn cm_connect_exchanges_private_data_and_messages() {
    let ours = example!("cm_connect");
    for (device, ip) in device_addresses() {
        let address = SocketAddr::new(ip, tcp_port());
        let server = serve(ours, "serve", address);
        for _ in 0..2 {
            let [client] = assert_success([run(ours, &format!("hello {address}"))]);
            assert_eq!(
                client.stdout.lines().collect::<Vec<_>>(),
                [
                    &format!("route over {} port 1", device.name()),
                    "connected, the server says \"welcome\"",
                    "HELLO",
                ]
            );
        }
        let finished = stop(server);
        assert!(
            finished.stderr.is_empty() && finished.stdout.matches(": hello").count() == 2,
            "{finished:?}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn changing_memory_shows_mixtures_and_never_old_data() {
    let ours = example!("changing_memory");
    for (_, ip) in one_address_each() {
        let address = SocketAddr::new(ip, tcp_port());
        let server = serve(ours, "serve", address);
        let [client] = assert_success([run(ours, &format!("read {address}"))]);
        let numbers: Vec<u64> = client
            .stdout
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let [reads, mixtures, last] = numbers[..] else {
            panic!("expected three numbers: {client:?}");
        };
        assert!(
            reads == 200 && mixtures > 0 && mixtures < reads && last > 10,
            "{client:?}"
        );
        server.kill();
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn completion_events_sleeps_between_messages() {
    let ours = example!("completion_events");
    for (_, ip) in one_address_each() {
        let address = SocketAddr::new(ip, tcp_port());
        let receiver = serve(ours, "recv", address);
        let sender = run(ours, &format!("send {address}"));
        let [receiver, _] = assert_success([receiver.wait(), sender]);
        let messages = receiver
            .stdout
            .lines()
            .filter(|line| line.starts_with("message "));
        assert_eq!(messages.count(), 20, "{receiver:?}");
        // An emulated machine may be so slow that it receives several messages at once.
        let slept = receiver.stdout.split_whitespace().rev().nth(1);
        let slept: u32 = slept
            .and_then(|number| number.parse().ok())
            .expect("a number");
        assert!((2..=41).contains(&slept), "{receiver:?}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn srq_server_serves_many_clients_and_gets_all_buffers_back() {
    let ours = example!("srq_server");
    for (_, ip) in one_address_each() {
        let address = SocketAddr::new(ip, tcp_port());
        let server = serve(ours, "serve", address);
        for clients in [1, 32, 64] {
            let [client] = assert_success([run(ours, &format!("load {address} {clients}"))]);
            let expected = format!("{clients} clients, {} round trips", clients * 10);
            assert!(client.stdout.contains(&expected), "{client:?}");
            server.next_stdout_line("clients: 0, receives posted: 192");
        }
        server.kill();
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn rping_interoperates_with_rping_of_librdmacm() {
    let ours = example!("rping");
    for (_, ip) in device_addresses() {
        // -V makes the C client verify the returned data.
        for (server, client) in [(ours, "rping"), ("rping", ours), (ours, ours)] {
            let size = if ip.is_ipv4() { 64 } else { 16_384 };
            let address = SocketAddr::new(ip, tcp_port());
            let c_options = format!("-a {ip} -p {} -v -C 5 -S {size}", address.port());
            let server_is_ours = server == ours;
            let server = if server_is_ours {
                serve(ours, "serve", address)
            } else {
                start(server, &format!("-s {c_options}")).wait_for_cm_listener(address.port())
            };
            let client = if client == ours {
                run(ours, &format!("ping {address} 5"))
            } else {
                run(client, &format!("-c {c_options} -V"))
            };
            let [client] = assert_success([client]);
            let server = if server_is_ours {
                stop(server)
            } else {
                server.wait()
            };
            for number in 0..5 {
                for (finished, label) in [(&server, "server ping data"), (&client, "ping data")] {
                    let expected = format!("{label}: rdma-ping-{number}: ");
                    let is_line = |line: &str| line.starts_with(&expected);
                    assert!(
                        finished.stdout.lines().any(is_line),
                        "{expected}: {finished:?}"
                    );
                }
            }
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn wrong_arguments_and_a_missing_server_are_reported() {
    for (_, ip) in device_addresses() {
        let finished = run(example!("rping"), &format!("ping {ip} 1"));
        assert!(
            finished.stderr.contains("expected ADDRESS:PORT"),
            "{finished:?}"
        );
        let address = SocketAddr::new(ip, tcp_port());
        let finished = run(example!("rping"), &format!("ping {address} 1"));
        assert!(
            !finished.success() && finished.stderr.contains("nothing listens on that port"),
            "{finished:?}"
        );
    }
    for program in [example!("rping"), example!("echo"), example!("cm_connect")] {
        let finished = run(program, "10.99.0.1:7471");
        assert!(
            !finished.success() && finished.stderr.contains("expected arguments: "),
            "{finished:?}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn echo_returns_each_word() {
    let ours = example!("echo");
    for (_, ip) in device_addresses() {
        let address = SocketAddr::new(ip, tcp_port());
        let server = serve(ours, "serve", address);
        for (words, count) in [("one two three", 3), ("four", 1)] {
            let [client] = assert_success([run(ours, &format!("send {address} {words}"))]);
            assert_eq!(client.stdout.lines().collect::<Vec<_>>().join(" "), words);
            server.next_stdout_line(&format!(": {count} messages"));
        }
        server.kill();
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn async_echo_serves_many_clients() {
    let ours = example!("async_echo");
    for (_, ip) in one_address_each() {
        let address = SocketAddr::new(ip, tcp_port());
        let server = serve(ours, "serve", address);
        let [client] = assert_success([run(ours, &format!("load {address} 32"))]);
        assert!(
            client.stdout.contains("32 clients, 320 round trips"),
            "{client:?}"
        );
        for _ in 0..32 {
            server.next_stdout_line(": 10 messages");
        }
        server.kill();
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_port_of_rpc_prints_each_sum() {
    for (_, ip) in device_addresses() {
        let address = SocketAddr::new(ip, tcp_port());
        let [finished] = assert_success([run(example!("async_rdma_rpc"), &address.to_string())]);
        assert_eq!(
            finished.stdout.lines().collect::<Vec<_>>(),
            [
                "rpc server started",
                "request: Add { arg1: 1, arg2: 1 }",
                "response: Add { res: 2 }",
                "request: Add { arg1: 2, arg2: 2 }",
                "response: Add { res: 4 }",
            ]
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn ud_chat_interoperates_with_udaddy() {
    let ours = example!("ud_chat");
    for (device, ip) in device_addresses() {
        // The port of udaddy is fixed.
        let address = SocketAddr::new(ip, 7174);
        if device.transport() == TransportType::IWARP {
            let finished = run(ours, &format!("send {address} hello"));
            assert!(
                !finished.success() && finished.stderr.contains("iWARP has no datagrams"),
                "{finished:?}"
            );
            continue;
        }
        for (server, client) in [(ours, "udaddy"), ("udaddy", ours), (ours, ours)] {
            let started = if server == ours {
                serve(ours, "serve", address)
            } else {
                start(server, &format!("-b {ip}")).wait_for_cm_listener(7174)
            };
            let sent = if client == ours {
                run(ours, &format!("send {address} hello"))
            } else {
                run(client, &format!("-s {ip}"))
            };
            let [started, sent] = assert_success([started.wait(), sent]);
            if server == client {
                let has_line = |text: &str, line| text.lines().any(|other| other == line);
                assert!(has_line(&started.stdout, "hello 10"), "{started:?}");
                assert!(has_line(&sent.stdout, "HELLO 10"), "{sent:?}");
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
        if device.transport() == TransportType::IWARP {
            let finished = run(ours, &format!("recv {group} {ip}"));
            assert!(
                !finished.success() && finished.stderr.contains("iWARP has no datagrams"),
                "{finished:?}"
            );
            continue;
        }
        for (receiver, sender) in [(ours, "mckey"), ("mckey", ours), (ours, ours)] {
            // Both programs print a line when they have joined the group.
            let mut receiving = if receiver == ours {
                start(ours, &format!("recv {group} {ip}")).wait_for_output("listening")
            } else {
                start("stdbuf", &format!("-oL mckey -m {group} -b {ip}"))
                    .wait_for_output("joined dgid")
            };
            // mckey exits without waiting for its sends to complete, so the last datagrams are
            // lost. It therefore sends many, and runs again until the receiver has
            // received enough or has timed out.
            let options = if sender == ours {
                format!("send {group} {ip} hello")
            } else {
                format!("-m {group} -b {ip} -C 500 -s")
            };
            let mut sent = run(sender, &options);
            while sender == "mckey" && sent.success() && receiving.is_running() {
                sent = run(sender, &options);
            }
            let [receiver, _] = assert_success([receiving.wait(), sent]);
            if receiver.stdout.contains("hello") {
                assert!(
                    receiver.stdout.lines().any(|line| line == "hello 10"),
                    "{receiver:?}"
                );
            }
        }
    }
}
