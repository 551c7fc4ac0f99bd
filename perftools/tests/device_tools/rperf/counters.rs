//! Causes of slow and failed tests that the counters of the ports show.
//!
//! Packets between two queue pairs of one Soft-RoCE device do not pass its network interface. These
//! tests therefore create a second device on the other end of its link. Between link-local
//! addresses, the packets pass the link, where netem disturbs them.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use ibverbs::{CqOptions, Device, GidIndex, Mtu, QpOptions, QueuePair, Rc, RcPath, wr};
use serde_json::Value;
use test_support::lab;
use test_support::process::{self, wait_until};

use super::KernelParameter;
use crate::common::{connects_directly, devices, fails, json, run, spawn};

/// Name of the second device.
pub(super) const FAR_DEVICE: &str = "rperffar";

/// A Soft-RoCE device and a second one on the other end of its link, which is removed when this is
/// dropped.
pub(super) struct Link {
    pub(super) device: String,
    pub(super) netdev: String,
    pub(super) far_netdev: String,
}

impl Link {
    /// Creates the second device. Returns `None` if no device is Soft-RoCE on a pair of virtual
    /// interfaces.
    pub(super) fn new() -> Option<Self> {
        let device = devices().into_iter().find(|name| name.starts_with("rxe"))?;
        let netdev = lab::netdev(&device);
        let far_netdev = far_end(&netdev)?;
        let has_address = |netdev: &str| {
            let addresses = process::run_line(&format!("ip -6 addr show dev {netdev}"));
            addresses.contains("fe80::") && !addresses.contains("tentative")
        };
        for netdev in [&netdev, &far_netdev] {
            assert!(
                wait_until(Duration::from_secs(20), || has_address(netdev)),
                "{netdev} has no link-local address"
            );
        }
        process::run_line(&format!(
            "rdma link add {FAR_DEVICE} type rxe netdev {far_netdev}"
        ));
        // netem must not disturb the resolution of the addresses.
        for (netdev, other) in [(&netdev, &far_netdev), (&far_netdev, &netdev)] {
            let (address, mac) = link_local_address(other);
            let entry = format!("{address} lladdr {mac} nud permanent");
            process::run_line(&format!("ip -6 neigh replace dev {netdev} to {entry}"));
        }
        Some(Self {
            device,
            netdev,
            far_netdev,
        })
    }

    /// Disturbs the packets from the first device to the second one.
    fn disturb(&self, netem: &str) -> Disturbance {
        Disturbance::new(&self.netdev, netem)
    }

    /// Returns options for a test from the first device to the second one.
    pub(super) fn options(&self) -> String {
        format!(
            "-li {} -ri {FAR_DEVICE} --local-gid-index 0 --remote-gid-index 0",
            self.device
        )
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = Command::new("rdma")
            .args(["link", "delete", FAR_DEVICE])
            .status();
    }
}

/// Returns the link-local address and the MAC address of an interface.
pub(super) fn link_local_address(netdev: &str) -> (String, String) {
    let text = process::run_line(&format!("ip -6 -br addr show dev {netdev}"));
    let mut words = text.split_whitespace();
    let address = words.find(|word| word.starts_with("fe80::"));
    let address = address.and_then(|word| word.split('/').next());
    let mac = fs::read_to_string(format!("/sys/class/net/{netdev}/address"));
    (
        address.expect("a link-local address").to_owned(),
        mac.expect("a MAC address").trim().to_owned(),
    )
}

/// Returns the other end of a pair of virtual interfaces.
fn far_end(netdev: &str) -> Option<String> {
    let read = |netdev: &str, file: &str| {
        let path = format!("/sys/class/net/{netdev}/{file}");
        fs::read_to_string(path).ok()?.trim().parse::<u32>().ok()
    };
    let (index, link) = (read(netdev, "ifindex")?, read(netdev, "iflink")?);
    let names = fs::read_dir("/sys/class/net").ok()?.flatten();
    names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .find(|name| link != index && read(name, "ifindex") == Some(link))
}

/// A queueing discipline of an interface. Dropping this removes it.
struct Disturbance {
    netdev: String,
}

impl Disturbance {
    fn new(netdev: &str, netem: &str) -> Self {
        process::run_line(&format!("tc qdisc add dev {netdev} root netem {netem}"));
        Self {
            netdev: netdev.to_owned(),
        }
    }
}

impl Drop for Disturbance {
    fn drop(&mut self) {
        let _ = Command::new("tc")
            .args(["qdisc", "del", "dev", &self.netdev, "root"])
            .status();
    }
}

/// Returns the measurement of a test.
fn measured(line: &str) -> Value {
    json(line)[0]["outcome"]["measured"].clone()
}

/// Returns the kinds of the warnings of a measurement.
fn kinds(measured: &Value) -> Vec<&str> {
    let warnings = measured["warnings"].as_array().expect("warnings");
    let kinds = warnings.iter().map(|w| w["kind"].as_str().expect("a kind"));
    kinds.collect()
}

/// Returns the increase of a counter at one end.
fn increase(measured: &Value, end: &str, counter: &str) -> u64 {
    measured[end]["port_counters"]["increased"][counter]
        .as_u64()
        .unwrap_or(0)
}

/// Checks that a test names this cause, and that this counter of an end increased. netem decides at
/// random, so the test runs up to five times.
fn assert_named(line: &str, netem: &str, cause: &str, (end, counter): (&str, &str)) {
    let mut last = Value::Null;
    let is_named = (0..5).any(|_| {
        last = measured(line);
        kinds(&last).contains(&cause) && increase(&last, end, counter) > 0
    });
    assert!(is_named, "{netem}: {cause}, {counter}: {last:#}");
}

const CAUSES: [&str; 9] = [
    "link_down",
    "symbol_errors",
    "receiver_not_ready",
    "discards",
    "packet_loss",
    "duplicates",
    "rejected_requests",
    "congestion",
    "pause_frames",
];

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn counters_name_what_disturbs_a_roce_link() {
    let Some(link) = Link::new() else {
        return lab::report_no_device("needs Soft-RoCE on a pair of virtual interfaces");
    };
    let line = format!("{} -t 500ms rc_bw", link.options());
    let m = measured(&line);
    assert!(
        increase(&m, "local_stats", "hw_counters/sent_pkts") > 0,
        "{m:#}"
    );
    assert!(
        increase(&m, "remote_stats", "hw_counters/rcvd_pkts") > 0,
        "{m:#}"
    );
    assert_eq!(
        m["local_stats"]["port_counters"]["unknown"]
            .as_array()
            .map_or(0, Vec::len),
        0,
        "{m:#}"
    );
    for (netem, cause, end, counter) in [
        (
            "loss 3%",
            "packet_loss",
            "remote_stats",
            "hw_counters/out_of_seq_request",
        ),
        (
            "loss 3%",
            "packet_loss",
            "local_stats",
            "hw_counters/completer_retry_err",
        ),
        // Soft-RoCE drops packets with a wrong ICRC without counting them, so they are lost.
        (
            "corrupt 4%",
            "packet_loss",
            "local_stats",
            "hw_counters/completer_retry_err",
        ),
        (
            "duplicate 20%",
            "duplicates",
            "remote_stats",
            "hw_counters/duplicate_request",
        ),
        (
            "delay 1ms reorder 90%",
            "packet_loss",
            "remote_stats",
            "hw_counters/out_of_seq_request",
        ),
    ] {
        let _disturbance = link.disturb(netem);
        // A short queue, so that a lost packet does not cost many others.
        assert_named(
            &format!("{line} --depth 8 -m 4K"),
            netem,
            cause,
            (end, counter),
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn errors_name_what_the_counters_show() {
    let Some(link) = Link::new() else {
        return lab::report_no_device("needs Soft-RoCE on a pair of virtual interfaces");
    };
    let line = format!("{} -t 2 rc_bw", link.options());
    // Packets are lost, or the queue of the interface is full, so the kernel does not accept them.
    // The first test fails after two timeouts of 0.54 s, the second one after six of 17 ms.
    let lost = "packets were lost or reordered on the way";
    let failed = [
        (
            "loss 100%",
            "-to 60 --qp-timeout 17 --retry-count 1",
            format!("{lost} (retry_exceeded_err 1)"),
        ),
        (
            "loss 100%",
            "-to 60 --qp-timeout 12 --retry-count 5",
            format!("{lost} (completer_retry_err "),
        ),
        (
            "limit 2 delay 20ms",
            "",
            "a port or a host discarded packets (send_err ".to_owned(),
        ),
    ];
    let fail = |(netem, options, expected): &(&str, &str, String)| {
        let _disturbance = link.disturb(netem);
        let begin = Instant::now();
        let text = fails(&format!("{options} {line}"), 1);
        let time = begin.elapsed();
        assert!(text.contains(expected), "{netem}: {text}");
        assert_eq!(
            (text.lines().count(), text.matches("help: ").count()),
            (1, 1),
            "{text}"
        );
        time
    };
    fail(&failed[2]);
    // On a busy machine, the start of a program can take longer than the timeouts.
    let is_shorter = || fail(&failed[0]) > fail(&failed[1]);
    assert!((0..3).any(|_| is_shorter()), "the timeout has no effect");
    let before = sent_packets(&link.device);
    let client = spawn(&line);
    let began = || sent_packets(&link.device) > before + 10;
    assert!(wait_until(Duration::from_secs(60), began));
    process::run_line(&format!("ip link set {} down", link.far_netdev));
    let output = client.wait();
    process::run_line(&format!("ip link set {} up", link.far_netdev));
    let text = output.stderr;
    // The kernel notices the loss of carrier up to a second later. The test may end before the
    // counter increases, and the state of the port then tells.
    let state = format!("port 1 of {} is DOWN", link.device);
    assert!(
        text.contains("the link went down (link_downed 1") || text.contains(&state),
        "{text}"
    );
    let is_up = || {
        let state = format!("/sys/class/infiniband/{}/ports/1/state", link.device);
        fs::read_to_string(state).is_ok_and(|state| state.contains("ACTIVE"))
    };
    assert!(wait_until(Duration::from_secs(20), is_up));
}

/// Returns the number of packets that a Soft-RoCE device has sent.
fn sent_packets(device: &str) -> u64 {
    let path = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/sent_pkts");
    let text = fs::read_to_string(path).expect("a counter");
    text.trim().parse().expect("a number")
}

/// A send to a queue pair without receives. It is retried until this is dropped.
struct SendWithoutReceive {
    _sender: QueuePair<Rc>,
    _receiver: QueuePair<Rc>,
}

impl SendWithoutReceive {
    fn new(device: &str) -> ibverbs::Result<Self> {
        let context = Device::by_name(device)?.open()?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(CqOptions::new().depth(8))?;
        let mut qps = [
            pd.create_qp::<Rc>(&cq, &cq, QpOptions::new())?,
            pd.create_qp::<Rc>(&cq, &cq, QpOptions::new())?,
        ];
        let path = RcPath::new(1, GidIndex(0), Mtu::B1024).rnr_retry(7);
        for qp in &mut qps {
            qp.init(&path)?;
        }
        let ends = [qps[1].endpoint(&path)?, qps[0].endpoint(&path)?];
        for (qp, end) in qps.iter_mut().zip(&ends) {
            qp.connect(&path, end)?;
        }
        let [mut sender, receiver] = qps;
        sender.post_send(wr::send(wr::Empty))?;
        Ok(Self {
            _sender: sender,
            _receiver: receiver,
        })
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn receiver_without_receives_is_named() {
    for device in devices().iter().filter(|name| name.starts_with("rxe")) {
        let line = format!("-i {device} -t 500ms rc_bw");
        // On a busy machine, the test may end before the send is retried.
        let is_named = || {
            let _other_program = SendWithoutReceive::new(device).expect("queue pairs");
            let m = measured(&line);
            let sent = increase(&m, "local_stats", "hw_counters/send_rnr_err");
            kinds(&m).contains(&"receiver_not_ready") && sent > 0
        };
        assert!((0..5).any(|_| is_named()), "{device}: not in the record");
        let is_shown = || {
            let _other_program = SendWithoutReceive::new(device).expect("queue pairs");
            let text = run(&line).stdout;
            text.lines().any(|line| {
                line.contains(" cause ") && line.contains("RNR: the receiver had no receive")
            })
        };
        assert!((0..5).any(|_| is_shown()), "{device}: not in the text");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn tcp_counters_explain_soft_iwarp() {
    let names = devices();
    let Some(device) = names.iter().find(|name| !connects_directly(name)) else {
        return;
    };
    let line = format!("-i {device} -t 500ms rc_bw");
    let _ecn = KernelParameter::set("/proc/sys/net/ipv4/tcp_ecn", "1");
    for (netem, cause, counter) in [
        ("loss 2%", "packet_loss", "Tcp/RetransSegs"),
        ("corrupt 2%", "symbol_errors", "Tcp/InCsumErrors"),
        ("loss 10% ecn", "congestion", "IpExt/InCEPkts"),
    ] {
        let _disturbance = Disturbance::new("lo", netem);
        assert_named(&line, netem, cause, ("local_stats", counter));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn undisturbed_tests_name_no_cause() {
    for device in devices() {
        // A busy machine can delay packets so long that they are sent again.
        let is_clean = || {
            let m = measured(&format!("-i {device} -t 500ms rc_bw"));
            assert!(m["local_stats"]["port_counters"].is_object(), "{m:#}");
            !kinds(&m).iter().any(|kind| CAUSES.contains(kind))
        };
        assert!(
            (0..5).any(|_| is_clean()),
            "{device}: a cause in each of five tests"
        );
    }
}
