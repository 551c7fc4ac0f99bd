//! Datagrams of a process that has the Q_Key of a test.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ibverbs::wr::{self, Destination};
use ibverbs::{AhAttr, Gid, GidIndex, HeldAddress, Qkey, Qpn};
use measure::transport::device::{OpenedDevice, open_active_ports};
use serde_json::Value;
use session::probe::datagram_qp::DatagramQp;
use test_support::process::{Process, wait_until};

use crate::common::{Server, connects_directly, devices, spawn};

/// Length of the messages of a test in bytes.
const LEN: usize = 64;

/// Passes the bytes of one direction on, and keeps them.
fn relay(mut from: TcpStream, mut to: TcpStream, kept: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        kept.lock().unwrap().extend_from_slice(&bytes[..len]);
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// A test whose control connection passes a relay, which keeps the bytes of both ends.
pub(super) struct RelayedTest {
    pub(super) client: Process,
    _server: Server,
    requests: Arc<Mutex<Vec<u8>>>,
    replies: Arc<Mutex<Vec<u8>>>,
}

impl RelayedTest {
    /// Starts a test with these options.
    pub(super) fn start(options: &str) -> Self {
        let server = Server::start();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = spawn(&format!("-lp {port} 127.0.0.1 {options}"));
        let kept: [Arc<Mutex<Vec<u8>>>; 2] = Default::default();
        let near = listener.accept().unwrap().0;
        let far = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let ends = [(&near, &far), (&far, &near)];
        for ((from, to), kept) in ends.into_iter().zip(&kept) {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let kept = Arc::clone(kept);
            thread::spawn(move || relay(from, to, &kept));
        }
        let [requests, replies] = kept;
        Self {
            client,
            _server: server,
            requests,
            replies,
        }
    }

    /// Waits until the server has sent a number in a field, and returns it.
    pub(super) fn wait_for_number(&self, field: &str) -> u64 {
        let is_sent = || number(&self.replies, field).is_some();
        assert!(wait_until(Duration::from_secs(30), is_sent), "{field}");
        number(&self.replies, field).unwrap()
    }
}

/// Returns the first number of a field in bytes that have JSON texts.
fn number(bytes: &Mutex<Vec<u8>>, field: &str) -> Option<u64> {
    let bytes = bytes.lock().unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let (_, rest) = text.split_once(&format!("\"{field}\":"))?;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[..end].parse().ok()
}

/// Holds the address of a port for sends from the same port.
fn hold_address(qp: &mut DatagramQp, port: &OpenedDevice) -> HeldAddress {
    let mut addresses = port.addresses.iter();
    let address = addresses.find(|address| address.ip.is_some_and(|ip| ip.is_ipv4()));
    let address = address.expect("an IPv4 address");
    let index = u8::try_from(address.gid_index.expect("a GID")).expect("a small index");
    let gid = Gid::from(address.ip.expect("an address"));
    let attr = AhAttr::for_gid(port.port_num, GidIndex(index), gid);
    let handle = qp.pd().create_ah(&attr).expect("an address handle");
    qp.qp().hold_address(&handle).expect("held")
}

/// Sends messages to queue pairs: of another length, with a random number, and empty.
fn inject(qp: &mut DatagramQp, address: HeldAddress, qkey: u32, qpns: &[u32], imm: u32) {
    for (len, qpn) in [LEN, LEN / 2, 0]
        .into_iter()
        .flat_map(|len| qpns.iter().map(move |qpn| (len, *qpn)))
    {
        let to = Destination {
            address,
            qpn: Qpn(qpn),
            qkey: Qkey(qkey),
        };
        // Without a payload, it looks like a credit.
        let mut buf = qp.pd().buf(LEN).expect("a buffer");
        buf.set_len(len);
        let message = wr::send_with_imm(buf, imm).to(to);
        assert!(qp.qp().post_send(message).is_ok());
    }
    qp.wait(Duration::from_millis(1)).expect("a device");
    qp.poll(&mut Vec::new()).expect("completions");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn foreign_datagrams_are_counted_and_shown() {
    let names = devices();
    for port in open_active_ports() {
        let device = port.context.device_name();
        if !names.iter().any(|name| name == device) || !connects_directly(device) {
            continue;
        }
        for options in ["", "--use-cm on"] {
            for test in ["ud_bw", "ud_lat"] {
                let line = format!("-i {device} {options} --json -t 1 -m {LEN} {test}");
                let mut relayed = RelayedTest::start(&line);
                let qkey = u32::try_from(relayed.wait_for_number("qkey")).unwrap();
                let mut qp = DatagramQp::new(&port, Qkey(qkey)).expect("a queue pair");
                let address = hold_address(&mut qp, &port);
                let own = qp.qp().qp_num().0;
                for round in 0_u32.. {
                    if !relayed.client.is_running() {
                        break;
                    }
                    let sides = [&relayed.replies, &relayed.requests];
                    let [server, client] = sides.map(|bytes| {
                        number(bytes, "qpn").map(|number| u32::try_from(number).unwrap())
                    });
                    let qpns = match (server, client) {
                        (Some(server), Some(client)) => vec![server, client],
                        // Those of rdma_cm are not on the control connection.
                        _ => (own.saturating_sub(4)..own + 4)
                            .filter(|n| *n != own)
                            .collect(),
                    };
                    inject(
                        &mut qp,
                        address,
                        qkey,
                        &qpns,
                        round.wrapping_mul(0x9e37_79b9),
                    );
                    // Without a pause, a single processor has no time for the test.
                    thread::sleep(Duration::from_millis(2));
                }
                let output = relayed.client.wait();
                assert!(output.success(), "{line}: {output}");
                let record: Value = serde_json::from_str(&output.stdout).expect("JSON");
                let count = |end: &str| {
                    let measured = &record["outcome"]["measured"];
                    let foreign = &measured[end]["foreign"];
                    foreign.as_u64().unwrap_or_else(|| panic!("{record:#}"))
                };
                let foreign = count("local_stats") + count("remote_stats");
                println!("{device} {options}, {test}: {foreign} foreign messages");
                assert!(foreign > 0, "{record:#}");
                assert!(
                    output.stdout.contains("messages of another sender"),
                    "{output}"
                );
            }
        }
    }
}
