//! A queue pair for general services (GSI) that has failed.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ibverbs::{CqOptions, QpOptions, Rc};
use rdmacm::{ConnectParams, Resolver};
use test_support::lab::{LinkDown, report_no_device};
use test_support::process;

use super::program::{apply, assert_finding, check, roce_devices, wait_for_check};
use crate::common::second_device::SecondDevice;

/// Port without a listener.
const PORT: u16 = 7199;

/// Requests a connection to this host. Returns whether an answer came.
fn is_answered(second: &SecondDevice, link: &str) -> bool {
    let mut command = process::ignored_test("ribinfo::gsi::connection_request_process");
    command
        .env("GSI_ADDRESS", &second.ip)
        .env("GSI_NETDEV", &second.netdev)
        .env("GSI_LINK", link);
    let output = process::output(&mut command);
    // Another status is that of a panic.
    match output.code() {
        Some(0) => true,
        Some(3) => false,
        _ => panic!("{output}"),
    }
}

/// Requests a connection with the link up or down. Does nothing unless another test starts it, in a
/// process of its own because librdmacm keeps the device open.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn connection_request_process() {
    let Ok(address) = std::env::var("GSI_ADDRESS") else {
        return report_no_device("a process of another test");
    };
    let variable = |name: &str| std::env::var(name).expect("set by the other test");
    let ip: IpAddr = address.parse().expect("an address");
    let route = Resolver::new(SocketAddr::new(ip, PORT)).resolve();
    let route = route.expect("a route");
    let pd = route
        .context()
        .and_then(|context| context.alloc_pd())
        .expect("PD");
    let cq = pd
        .context()
        .create_cq(CqOptions::default())
        .expect("completion queue");
    let qp = pd
        .create_qp::<Rc>(&cq, &cq, QpOptions::default())
        .expect("queue pair");
    let ready = route.with_qp(qp).expect("a ready route");
    let down = (variable("GSI_LINK") == "down").then(|| LinkDown::new(&variable("GSI_NETDEV")));
    let error = ready
        .connect(&ConnectParams::default(), Duration::from_secs(2))
        .expect_err("nothing listens");
    println!("{}", error.error());
    drop(down);
    if error.rejection().is_none() {
        std::process::exit(3);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn failed_gsi_queue_pair_is_found_and_its_remedy_works() {
    for (number, name) in roce_devices().iter().enumerate() {
        let second = SecondDevice::new(name, 40 + number);
        let port = format!("port {}/1", second.name);
        wait_for_check(&["port"], 0);
        assert_finding(&check(&["port"]).0, "ok", &port, &["ACTIVE"]);
        assert!(is_answered(&second, "up"));
        assert!(!is_answered(&second, "down"));
        let is_found = || check(&["port"]).0.contains("queue pair 1 (GSI)");
        assert!(
            process::wait_until(Duration::from_secs(20), is_found),
            "{}",
            check(&["port"]).0
        );
        assert!(!is_answered(&second, "up"));
        let remedy = assert_finding(&check(&["port"]).0, "fault", &port, &["GSI", "ERR"]);
        apply(&remedy);
        wait_for_check(&["port"], 0);
        assert_finding(&check(&["port"]).0, "ok", &port, &["ACTIVE"]);
        assert!(is_answered(&second, "up"));
    }
}
