//! Faults of Soft-iWARP that depend on the time at which data arrives. The peer is a TCP socket, so
//! the tests determine that time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use ibverbs::{AccessFlags, wr};
use rdmacm::{ConnectParams, Listener};

use crate::lab::{Endpoint, Peer, TIMEOUT, one_endpoint_each};

/// Operations of RDMAP (RFC 5040, 4.3).
const READ_REQUEST: u16 = 1;
const READ_RESPONSE: u16 = 2;
const SEND: u16 = 3;

/// Versions of DDP and RDMAP, and the flag of the last segment of a message.
const VERSIONS: u16 = 0x0140;
const LAST: u16 = 0x4000;

/// Time in which a message arrives that the kernel has noticed.
const ARRIVAL: Duration = Duration::from_secs(1);

/// A peer of the device that is a TCP connection.
struct TcpPeer(TcpStream);

impl TcpPeer {
    /// Sends the request of the MPA handshake: revision 2 with one READ in each direction, without
    /// markers and checksums (RFC 5044, 7.1; RFC 6581, 9).
    fn connect(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).expect("connect");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        stream.set_read_timeout(Some(TIMEOUT)).expect("SO_RCVTIMEO");
        let mut request = b"MPA ID Req Frame".to_vec();
        request.extend([0x10, 2, 0, 4]); // enhanced, revision 2, length of the rest
        request.extend([0, 1, 0, 1]);
        stream.write_all(&request).expect("the request");
        Self(stream)
    }

    /// Waits for the reply of the MPA handshake.
    fn expect_reply(&mut self) {
        let mut reply = [0; 24];
        self.0.read_exact(&mut reply).expect("the reply");
        let len = u16::from_be_bytes([reply[18], reply[19]]);
        assert_eq!((&reply[..16], len), (&b"MPA ID Rep Frame"[..], 4));
    }

    /// Sends a message of one segment: the number of its queue, its number, and its payload.
    fn send(&mut self, operation: u16, queue: u32, number: u32, payload: &[u8]) {
        let len = u16::try_from(18 + payload.len()).expect("one segment");
        let mut segment = len.to_be_bytes().to_vec();
        segment.extend((LAST | VERSIONS | operation).to_be_bytes());
        for word in [0, queue, number, 0] {
            segment.extend(word.to_be_bytes());
        }
        segment.extend(payload);
        let padding = segment.len().next_multiple_of(4) - segment.len();
        // The last four bytes are the checksum, which is not used.
        segment.extend(vec![0; padding + 4]);
        self.0.write_all(&segment).expect("a segment");
    }

    /// Receives a message. Returns its operation and the length of its payload.
    fn receive(&mut self) -> (u16, usize) {
        let mut received = 0;
        loop {
            let mut start = [0; 4];
            self.0.read_exact(&mut start).expect("a segment");
            let len = usize::from(u16::from_be_bytes([start[0], start[1]]));
            let control = u16::from_be_bytes([start[2], start[3]]);
            let operation = control & 0xf;
            let header = if operation == SEND { 18 } else { 14 };
            received += len - header;
            let rest = (len + 2).next_multiple_of(4) + 4 - start.len();
            let mut bytes = vec![0; rest];
            self.0.read_exact(&mut bytes).expect("the segment");
            if control & LAST != 0 {
                return (operation, received);
            }
        }
    }
}

/// Accepts the connection of a [`TcpPeer`], with two receives. `before` runs after the request of
/// the peer was read, before the device replies.
fn accept(endpoint: &Endpoint, listener: &Listener, before: impl FnOnce()) -> Peer {
    let request = listener.next_request(Some(TIMEOUT)).expect("accept");
    let request = request.expect("a request").access(AccessFlags::REMOTE_READ);
    before();
    let resources = endpoint.resources();
    let mut ready = request.with_qp(resources.qp()).expect("INIT");
    for _ in 0..2 {
        resources.receive_on(ready.qp_mut());
    }
    let params = ConnectParams::default();
    let connection = ready.accept(&params, TIMEOUT).expect("accept");
    Peer {
        connection,
        resources,
    }
}

fn iwarp() -> Endpoint {
    let mut endpoints = one_endpoint_each().into_iter();
    endpoints.find(Endpoint::is_iwarp).expect("no iWARP device")
}

/// Fault 50 in docs/drivers.md: data that arrives before the kernel has replaced the callback of
/// the socket stays in the socket until more data arrives.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn an_early_message_waits_for_more_data() {
    let endpoint = iwarp();
    let listener = endpoint.listen();
    let mut peer = TcpPeer::connect(listener.local_addr());
    let mut passive = accept(&endpoint, &listener, || {
        peer.send(SEND, 0, 1, b"early");
        thread::sleep(ARRIVAL);
    });
    peer.expect_reply();
    let noticed = passive.retire_within(ARRIVAL);
    assert!(
        noticed.is_none(),
        "the kernel has no fault 50: remove the workarounds that docs/drivers.md names"
    );
    peer.send(SEND, 0, 2, b"later");
    for expected in [b"early", b"later"] {
        let received = passive.retire();
        received.check().expect("received");
        assert_eq!(received.into_buf().expect("a buffer")[..], expected[..]);
    }
}

/// Fault 51 in docs/drivers.md: a READ of 0 bytes that arrives during a transmission is answered
/// with the length of what is being transmitted.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn an_empty_read_during_a_transmission_is_answered_wrongly() {
    // More than the buffers of TCP hold, so that the transmission waits for the peer.
    const LEN: usize = 16 << 20;
    for is_transmitting in [false, true] {
        let endpoint = iwarp();
        let listener = endpoint.listen();
        let mut peer = TcpPeer::connect(listener.local_addr());
        let mut passive = accept(&endpoint, &listener, || {});
        peer.expect_reply();
        // Tells the passive side that it can send.
        peer.send(SEND, 0, 1, b"ready");
        passive.retire().check().expect("received");
        let pd = &passive.resources.pd;
        let message = pd.buf(LEN).expect("a buffer");
        let region = pd
            .shared(64, AccessFlags::REMOTE_READ)
            .expect("a shared region");
        if is_transmitting {
            let qp = passive.connection.qp_mut();
            qp.post_send(wr::send(message)).expect("send");
            thread::sleep(ARRIVAL);
        }
        // Destination key and address, length, source key and address.
        let mut read = [0; 28];
        read[16..20].copy_from_slice(&region.remote().rkey.to_be_bytes());
        read[20..].copy_from_slice(&region.remote().addr.to_be_bytes());
        peer.send(READ_REQUEST, 1, 1, &read);
        thread::sleep(ARRIVAL);
        if is_transmitting {
            assert_eq!(peer.receive(), (SEND, LEN));
        }
        let (operation, len) = peer.receive();
        assert_eq!(operation, READ_RESPONSE);
        if is_transmitting {
            assert_ne!(
                len, 0,
                "the kernel has no fault 51: correct docs/drivers.md, and let rperf read no bytes"
            );
        } else {
            assert_eq!(len, 0, "nothing was transmitted");
        }
    }
}
