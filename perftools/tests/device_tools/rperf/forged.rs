//! Packets of RoCE that another program forges. A socket of UDP is enough, without privileges: they
//! have neither a key nor a signature. SECURITY.md says which of them an adapter accepts.

use std::fs;
use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{
    CompletionQueue, CqOptions, Device, Direction, GidIndex, Mtu, Psn, QpOptions, QueuePair, Rc,
    RcPath, Retired, wr,
};
use serde_json::Value;
use test_support::lab::report_no_device;
use test_support::process::wait_until;

use super::counters::{FAR_DEVICE, Link, link_local_address};
use super::foreign::RelayedTest;

/// Port of RoCE v2.
const PORT: u16 = 4791;
/// Length of the messages in bytes.
const LEN: usize = 64;

/// Opcodes of messages of one packet.
const RC_SEND: u8 = 0x04;
const UC_SEND: u8 = 0x24;
const UC_WRITE: u8 = 0x2a;

/// A program that forges packets from the near end of a link to the far end.
struct Forger {
    socket: UdpSocket,
    source: SocketAddrV6,
    to: SocketAddrV6,
}

/// A forged packet.
#[derive(Clone, Copy)]
struct Forged<'a> {
    opcode: u8,
    qpn: u32,
    psn: u32,
    /// The header of a write: address, key and length.
    header: &'a [u8],
    payload: &'a [u8],
}

impl Forger {
    fn new(link: &Link) -> Self {
        let index = fs::read_to_string(format!("/sys/class/net/{}/ifindex", link.netdev));
        let index: u32 = index.expect("an index").trim().parse().expect("a number");
        let at = |netdev: &str, port| {
            let address: Ipv6Addr = link_local_address(netdev).0.parse().expect("an address");
            SocketAddrV6::new(address, port, 0, index)
        };
        let socket = UdpSocket::bind(at(&link.netdev, 0)).expect("a socket");
        let to = at(&link.far_netdev, PORT);
        let source = match socket.local_addr().expect("bound") {
            std::net::SocketAddr::V6(source) => source,
            std::net::SocketAddr::V4(_) => panic!("IPv4"),
        };
        Self { socket, source, to }
    }

    fn send(&self, forged: Forged<'_>) {
        let Forged {
            opcode,
            qpn,
            psn,
            header,
            payload,
        } = forged;
        let [_, qpn @ ..] = qpn.to_be_bytes();
        let [_, psn @ ..] = psn.to_be_bytes();
        let base = [&[opcode, 0, 0xff, 0xff, 0][..], &qpn, &[0], &psn].concat();
        let mut packet = [&base, header, payload].concat();
        packet.extend(self.icrc(&packet));
        // The queue of the interface may be full.
        let _ = self.socket.send_to(&packet, self.to);
    }

    /// Returns the checksum of a packet, in which the fields that a router may change are ones (IBA
    /// A17.3.4).
    fn icrc(&self, packet: &[u8]) -> [u8; 4] {
        let len = u16::try_from(8 + packet.len() + 4)
            .expect("short")
            .to_be_bytes();
        let ip = [&[0x6f, 0xff, 0xff, 0xff][..], &len, &[17, 0xff]].concat();
        let addresses = [self.source, self.to].map(|end| end.ip().octets());
        let ports = [self.source, self.to].map(|end| end.port().to_be_bytes());
        let mut bytes = vec![0xff; 8];
        bytes.extend(ip);
        bytes.extend(addresses.concat());
        bytes.extend(ports.concat());
        bytes.extend([&len[..], &[0xff, 0xff]].concat());
        let at = bytes.len();
        bytes.extend(packet);
        bytes[at + 4] = 0xff;
        let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 }
            })
        });
        (!crc).to_le_bytes()
    }
}

/// A queue pair of one end of the link.
struct End {
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    path: RcPath,
}

impl End {
    fn new(device: &str, psn: u32) -> Self {
        let context = Device::by_name(device).and_then(|device| device.open());
        let pd = context.expect("a device").alloc_pd().expect("domain");
        let cq = pd.context().create_cq(CqOptions::new()).expect("queue");
        let mut qp = pd
            .create_qp(&cq, &cq, QpOptions::new())
            .expect("queue pair");
        let path = RcPath::new(1, GidIndex(0), Mtu::B1024).psn(Psn(psn));
        qp.init(&path).expect("INIT");
        for _ in 0..8 {
            let buf = pd.buf(LEN).expect("memory");
            qp.post_recv(wr::recv(buf)).expect("receive");
        }
        Self { qp, cq, path }
    }

    /// Returns the next completion within a time.
    fn retire(&mut self, time: Duration) -> Option<Retired> {
        let begin = Instant::now();
        loop {
            if let Some(completion) = self.cq.poll().expect("poll").next() {
                return Some(self.qp.retire(completion).expect("own"));
            }
            if begin.elapsed() > time {
                return None;
            }
            thread::yield_now();
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_forged_message_needs_the_next_sequence_number() {
    const PSN: u32 = 0x0012_3456;
    const SHORT: Duration = Duration::from_millis(300);
    const LONG: Duration = Duration::from_secs(60);
    let Some(link) = Link::new() else {
        return report_no_device("needs Soft-RoCE on a pair of virtual interfaces");
    };
    let [mut near, mut far] = [&link.device, FAR_DEVICE].map(|device| End::new(device, PSN));
    let ends = [&far, &near].map(|end| end.qp.endpoint(&end.path).expect("an address"));
    for (end, other) in [&mut near, &mut far].into_iter().zip(&ends) {
        end.qp.connect(&end.path, other).expect("connected");
    }
    let forger = Forger::new(&link);
    let forge = |qpn: u32, psn: u32| {
        forger.send(Forged {
            opcode: RC_SEND,
            qpn,
            psn: psn & 0x00ff_ffff,
            header: &[],
            payload: &[0xbd; LEN],
        });
    };
    let qpn = far.qp.qp_num().0;
    for distance in [1, 2, 100, 1 << 20, 1 << 22, 1 << 23] {
        forge(qpn, PSN + distance);
        forge(qpn, PSN.wrapping_sub(distance));
        forge(qpn.wrapping_add(distance), PSN);
    }
    assert!(far.retire(SHORT).is_none(), "a wrong number was accepted");
    forge(qpn, PSN);
    let received = far.retire(LONG).expect("the forged message");
    let bytes = received.into_buf().expect("a buffer");
    assert_eq!(bytes[..], [0xbd; LEN]);
    // The message of the peer is then taken for a repetition, and acknowledged.
    let mut buf = near.qp.pd().buf(LEN).expect("memory");
    buf.fill(7);
    near.qp.post_send(wr::send(buf)).expect("posted");
    let sent = near.retire(LONG).expect("a completion");
    assert!(sent.direction() == Direction::Send && sent.is_success());
    assert!(far.retire(SHORT).is_none(), "the message arrived as well");
}

/// Returns the number of messages of the server that its receiver counted as foreign.
fn foreign(record: &Value) -> u64 {
    record["outcome"]["measured"]["remote_stats"]["foreign"]
        .as_u64()
        .unwrap_or_else(|| panic!("{record:#}"))
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn forged_packets_are_shown_or_found_by_verify() {
    let Some(link) = Link::new() else {
        return report_no_device("needs Soft-RoCE on a pair of virtual interfaces");
    };
    let forger = Forger::new(&link);
    for test in ["uc_bw", "uc_rdma_write_bw", "rc_bw"] {
        let line = format!("{} --verify --json -t 1 -m {LEN} {test}", link.options());
        let run = || {
            let mut relayed = RelayedTest::start(&line);
            let qpn = relayed.wait_for_number("qpn");
            let (mut addr, mut rkey) = (0, 0);
            if test == "uc_rdma_write_bw" {
                addr = relayed.wait_for_number("addr");
                rkey = relayed.wait_for_number("rkey");
            }
            for number in 0_u64.. {
                if !relayed.client.is_running() {
                    break;
                }
                // The messages of a queue are next to each other.
                let at = addr + number % 256 * LEN as u64;
                let rkey = u32::try_from(rkey).expect("32 bits").to_be_bytes();
                let len = u32::try_from(LEN).expect("short").to_be_bytes();
                let header = [&at.to_be_bytes()[..], &rkey, &len].concat();
                let (opcode, header) = match test {
                    "uc_bw" => (UC_SEND, &[][..]),
                    "uc_rdma_write_bw" => (UC_WRITE, &header[..]),
                    _ => (RC_SEND, &[][..]),
                };
                forger.send(Forged {
                    opcode,
                    qpn: u32::try_from(qpn).expect("32 bits"),
                    psn: u32::try_from(number * 0x9e37 % (1 << 24)).expect("24 bits"),
                    header,
                    payload: &[0xbd; LEN],
                });
                if number % 16 == 15 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            relayed.client.wait()
        };
        // The processor decides which packets meet a message before it is verified.
        let is_as_expected = || {
            let output = run();
            println!("{test}: {output}");
            match test {
                "uc_bw" => {
                    let record = serde_json::from_str(&output.stdout).expect("JSON");
                    foreign(&record) > 0 && output.stdout.contains("messages of another sender")
                }
                "uc_rdma_write_bw" => output.stderr.contains("arrived damaged"),
                // A guess can slow a test down, and its bytes stay right.
                _ => output.success() && !output.stderr.contains("arrived damaged"),
            }
        };
        assert!(
            wait_until(Duration::from_secs(60), is_as_expected),
            "{test}"
        );
    }
}
