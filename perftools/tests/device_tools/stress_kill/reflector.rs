//! Probes of more senders than a reflector keeps addresses.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ibverbs::wr::Destination;
use ibverbs::{AhAttr, Gid, GlobalRoute, Lid, Qkey, Qpn};
use measure::data_key::random_qkey;
use measure::transport::device::{OpenedDevice, open_active_ports};
use session::probe::datagram_qp::{DatagramQp, Event};
use session::probe::packet::{Kind, Packet};
use session::probe::{ReflectorAddress, ReflectorInfo};
use session::protocol::{frame, hello};
use session::rperf::message::Message;

use test_support::usage::Usage;

use crate::common::{Server, connects_directly, devices};

/// Requests the reflector of a port.
fn reflector_of(server: &Server, port: &OpenedDevice) -> ReflectorInfo {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("a server");
    let greeting = hello::encode_request(hello::PROTOCOL);
    stream.write_all(&greeting).expect("sent");
    hello::read_reply(&mut stream).expect("a greeting");
    frame::write(&mut stream, &Message::AskReflectors).expect("sent");
    let reply = frame::read::<Message>(&mut stream).expect("a reply");
    let Message::Reflectors(reflectors) = reply else {
        panic!("{reply:?}")
    };
    let mut own = reflectors.into_iter().filter(|r| r.name == port.name());
    own.next().expect("a reflector of the port")
}

/// Sends probes to a reflector that each have a flow label of their own, and returns for each one
/// whether it was answered.
fn probe_with_flow_labels(port: &OpenedDevice, reflector: &ReflectorInfo, count: u32) -> Vec<bool> {
    let ReflectorAddress::QueuePair {
        addresses,
        qpn,
        qkey,
        ..
    } = &reflector.address
    else {
        panic!("{reflector:?}")
    };
    let own_qkey = random_qkey();
    let mut qp = DatagramQp::new(port, own_qkey).expect("a queue pair");
    let address = addresses
        .iter()
        .find(|address| address.ip.is_some_and(|ip| ip.is_ipv4()));
    let address = address.expect("an IPv4 address");
    let index = u8::try_from(address.gid_index.expect("a GID")).expect("a small index");
    let route = GlobalRoute::new(Gid::from(address.ip.expect("an address")), index);
    let attr = AhAttr::for_lid(port.port_num, Lid(0)).grh(route);
    let handle = qp.pd().create_ah(&attr).expect("an address handle");
    let to = Destination {
        address: qp.qp().hold_address(&handle).expect("held"),
        qpn: Qpn(*qpn),
        qkey: Qkey(*qkey),
    };
    let mut answered = vec![false; count as usize];
    let mut events = Vec::new();
    let labels: Vec<u32> = (0..count).collect();
    for labels in labels.chunks(32) {
        for label in labels {
            let packet = Packet {
                kind: Kind::Probe,
                flow_label: *label,
                key: reflector.key,
                session: 1,
                id: (*label).into(),
                nanos: 0,
                qkey: own_qkey.0,
            };
            assert!(qp.send(&packet, to, 1).expect("sent"));
        }
        // The next probes follow the answers, so that none is lost in a queue.
        let deadline = Instant::now() + Duration::from_millis(200);
        let range = labels[0] as usize..labels[0] as usize + labels.len();
        while !answered[range.clone()].iter().all(|answered| *answered) && Instant::now() < deadline
        {
            qp.wait(Duration::from_millis(5)).expect("a device");
            qp.poll(&mut events).expect("completions");
            for event in events.drain(..) {
                if let Event::Received { packet, .. } = event {
                    answered[usize::try_from(packet.id).expect("an index")] = true;
                }
            }
        }
    }
    answered
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_reflector_answers_more_probers_than_it_keeps_addresses() {
    // It keeps 16,384.
    const PROBES: u32 = 17_000;
    let names = devices();
    let server = Server::start();
    for port in open_active_ports() {
        let device = port.context.device_name();
        if !names.iter().any(|name| name == device) || !connects_directly(device) {
            continue;
        }
        let reflector = reflector_of(&server, &port);
        assert!(probe_with_flow_labels(&port, &reflector, 10).contains(&true));
        let before = Usage::of(server.id());
        let answered = probe_with_flow_labels(&port, &reflector, PROBES);
        let lost = answered.iter().filter(|answered| !**answered).count();
        let after = Usage::of(server.id());
        println!("{device}: {lost} of {PROBES} probes lost; {before}, then {after}");
        // Some are lost while the addresses are released.
        assert!(lost < 500, "{lost}");
        assert!(
            answered[PROBES as usize - 100..]
                .iter()
                .all(|answered| *answered)
        );
    }
    server.assert_responds();
}
