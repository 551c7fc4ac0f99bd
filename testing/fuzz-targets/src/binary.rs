//! The binary messages of qperf and rping, the private data of rdma_cm, probes, and HTTP requests.

use fleet::http;
use ibverbs::{Gid, GidIndex, Lid};
use measure::data_key::DataKey;
use measure::spec::test::Test;
use measure::transport::cm_datagrams::{LocalAddress, client_address, private_data};
use session::probe::packet::Packet;
use session::qperf::index;
use session::qperf::server::spec_from_request;
use session::qperf::{conf, node, request, stat};

use crate::assert_printable;
use perftools::ribping::rping::message;

/// Copies the beginning of an input to an array that is otherwise zero.
fn padded<const N: usize>(data: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let len = data.len().min(N);
    bytes[..len].copy_from_slice(&data[..len]);
    bytes
}

/// The messages of qperf.
pub fn qperf(data: &[u8]) {
    let request = request::Request::decode(&padded(data));
    assert_printable(&request.id);
    assert_printable(&request.static_rate);
    let again = request::Request::decode(&request.encode());
    // Strings that were escaped may exceed their field.
    assert_eq!(
        request::Request {
            id: again.id.clone(),
            static_rate: again.static_rate.clone(),
            ..request.clone()
        },
        again
    );
    let test = index::name(request.index).and_then(|name| Test::from_name(name).ok());
    if let Some(spec) = test.and_then(|test| spec_from_request(test, &request).ok()) {
        super::control::check_spec(&spec);
    }

    let bytes = padded::<{ stat::LEN }>(data);
    let stat = stat::Stat::decode(&bytes);
    assert_eq!(stat::Stat::decode(&stat.encode()), stat);
    let side = stat.to_side_stats();
    let host = side.cpu.host.expect("qperf sends it");
    for seconds in [host.user, host.kernel, host.intr, host.iowait] {
        assert!(seconds.is_finite() && seconds >= 0.0, "{host:?}");
    }

    let bytes = padded::<{ node::LEN }>(data);
    let node = node::Node::decode(&bytes);
    assert_eq!(node::Node::decode(&node.encode()), node);

    let conf = conf::decode(&padded(data));
    for text in [&conf.node, &conf.cpu, &conf.os, &conf.rperf] {
        assert_printable(text);
    }
}

/// Requests for metrics.
pub fn http_request(data: &[u8]) {
    let mut head = Vec::new();
    let _ = http::read_request(&mut &*data, &mut head);
    assert!(head.len() <= data.len());
}

/// The messages of rping, the private data of rperf's requests for connections, and probes.
pub fn rping(data: &[u8]) {
    if let Some(packet) = Packet::decode(data) {
        assert_eq!(Packet::decode(&packet.encode()), Some(packet));
    }
    match message::decode(data) {
        Some(memory) => assert_eq!(message::encode(memory), data),
        None => assert_ne!(data.len(), message::MESSAGE_LEN),
    }
    let local = LocalAddress {
        gid: Gid::default(),
        gid_index: Some(GidIndex(1)),
        lid: Lid(7),
        port_num: 1,
    };
    if let Some((to, qpn)) = client_address(data, local) {
        let gid = to.grh.expect("a GID").dgid;
        let again = private_data(
            DataKey {
                client: 0,
                server: 0,
            },
            0,
            qpn,
            LocalAddress { gid, ..local },
        );
        // The request begins with 12 bytes that identify it; the LID is unused with a GID.
        assert_eq!((&again[12..16], &again[18..]), (&data[..4], &data[6..22]));
    }
}
