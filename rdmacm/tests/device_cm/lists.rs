//! Gather and scatter lists on real drivers.

use std::thread;

use ibverbs::{AccessFlags, BufList, PostError, QpOptions, QueuePair, Rc, wr};
use rdmacm::{ConnectParams, Resolver};

use crate::lab::{
    self, Endpoint, Peer, Resources, TIMEOUT, assert_no_leaks, leak_checked, one_endpoint_each,
};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn lists_with_empty_parts_arrive_whole() {
    for endpoint in leak_checked(one_endpoint_each()) {
        println!("device: {}", endpoint.name());
        let (mut a, mut b) = connected(&endpoint);
        let parts: [&[u8]; 3] = [b"gat", b"", b"hered"];
        let frozen = a.resources.pd.buf(8).expect("buffer");
        let frozen = write(frozen, b"gathered").freeze();
        let held = a.connection.qp_mut().hold(&frozen).expect("hold");
        let pieces = [0..3, 3..3, 3..8].map(|range| held.slice(range).expect("within"));
        let list = a.connection.qp_mut().hold_list(&pieces).expect("hold");
        for held in [false, true] {
            b.receive();
            let qp = a.connection.qp_mut();
            if held {
                qp.post_send(wr::send(list)).expect("send");
            } else {
                let buf = |part| write(a.resources.pd.buf(8).expect("buffer"), part);
                let bufs = parts.into_iter().map(buf).collect();
                qp.post_send(wr::send(BufList::new(bufs))).expect("send");
            }
            let sent = a.retire();
            sent.check().expect("success");
            let count = sent.into_list().map(|list| list.into_bufs().len());
            assert_eq!(count, (!held).then_some(3));
            let received = b.retire();
            received.check().expect("success");
            assert_eq!(&*received.into_buf().expect("posted"), b"gathered");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn reads_fill_lists_in_order() {
    const ACCESS: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);
    for endpoint in one_endpoint_each() {
        println!("device: {}", endpoint.name());
        assert_no_leaks(&endpoint, || {
            let (mut a, b) = connected(&endpoint);
            let source = b.resources.pd.shared(64, ACCESS).expect("region");
            let numbers: Vec<u8> = (0..64).collect();
            source.write(0, &numbers).expect("in range");
            let part = |start, len| source.remote().slice(start..start + len).expect("in range");
            let into = a.resources.pd.shared(64, ACCESS).expect("region");
            let whole = a.connection.qp_mut().hold(&into).expect("hold");
            let pieces = [40..42, 8..11].map(|range| whole.slice(range).expect("in range"));
            let attr = endpoint.context.query_device().expect("query");
            let max = attr.max_sge_rd.min(2);
            assert_eq!(max, if endpoint.is_iwarp() { 1 } else { 2 });
            let qp = a.connection.qp_mut();
            let (one, two) = (qp.hold_list(&pieces[..1]), qp.hold_list(&pieces));
            let (one, two) = (one.expect("list"), two.expect("list"));
            let request = wr::read(two, part(20, 5));
            if max == 1 {
                let error = qp.post_send(request).expect_err("two entries").error();
                assert_eq!(error, PostError::TooManyPieces { count: 2, max });
                qp.post_send(wr::read(one, part(20, 2))).expect("read");
            } else {
                qp.post_send(request).expect("read");
            }
            a.retire().check().expect("read");
            let (mut first, mut second) = ([0; 2], [0; 3]);
            into.read(40, &mut first).expect("in range");
            into.read(8, &mut second).expect("in range");
            assert_eq!(first, [20, 21]);
            assert_eq!(second, if max == 1 { [0; 3] } else { [22, 23, 24] });

            let sizes = [3, 5, 40];
            let buf = |size| a.resources.pd.buf(size).expect("buffer");
            let list = BufList::new(sizes.map(buf).into());
            let posted = a
                .connection
                .qp_mut()
                .post_send(wr::read(list, part(10, 10)));
            if endpoint.is_iwarp() {
                let error = posted.expect_err("no peer can write it").error();
                assert_eq!(error, PostError::NeedsShared);
                return;
            }
            posted.expect("read");
            let retired = a.retire();
            retired.check().expect("read");
            let list = retired.into_list().expect("posted with a list");
            let parts: Vec<&[u8]> = list.iter().map(|buf| &buf[..]).collect();
            assert_eq!(parts, [&[10, 11, 12][..], &[13, 14, 15, 16, 17], &[18, 19]]);
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn atomics_store_their_result_in_a_part_of_a_buffer() {
    const ACCESS: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_ATOMIC);
    for endpoint in leak_checked(one_endpoint_each()) {
        println!("device: {}", endpoint.name());
        if endpoint.is_iwarp() {
            println!("unsupported: {} atomics", endpoint.name());
            continue;
        }
        let (mut a, b) = connected(&endpoint);
        let word = b.resources.pd.shared(8, ACCESS).expect("region");
        word.write(0, &40_u64.to_ne_bytes()).expect("in range");
        let record = write(a.resources.pd.buf(24).expect("buffer"), &[7; 24]);
        let slice = record.into_slice(8..16).expect("in range");
        let add = wr::fetch_add(slice, word.remote(), 2);
        a.connection.qp_mut().post_send(add).expect("add");
        let retired = a.retire();
        retired.check().expect("added");
        let record = retired.into_buf().expect("the whole buffer");
        assert_eq!(record[8..16], 40_u64.to_ne_bytes());
        assert_eq!((&record[..8], &record[16..]), (&[7; 8][..], &[7; 8][..]));
    }
}

fn write(mut buf: ibverbs::Buf, bytes: &[u8]) -> ibverbs::Buf {
    buf.set_len(bytes.len());
    buf.copy_from_slice(bytes);
    buf
}

const REMOTE_ACCESS: AccessFlags = AccessFlags::REMOTE_READ
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_ATOMIC);

/// Connects queue pairs whose requests can have three entries.
fn connected(endpoint: &Endpoint) -> (Peer, Peer) {
    let listener = endpoint.listen();
    let params = ConnectParams::default();
    let qp = |Resources { pd, cq }: &Resources| -> QueuePair<Rc> {
        let options = QpOptions::new().max_send_sge(3);
        pd.create_qp(cq, cq, options).expect("queue pair")
    };
    thread::scope(|scope| {
        let passive = scope.spawn(|| {
            let resources = endpoint.resources();
            let request = lab::request(&listener);
            let request = request.access(REMOTE_ACCESS);
            let ready = request.with_qp(qp(&resources)).expect("INIT");
            let connection = ready.accept(&params, TIMEOUT).expect("accept");
            Peer {
                connection,
                resources,
            }
        });
        let resources = endpoint.resources();
        let resolver = Resolver::new(listener.local_addr()).timeout(TIMEOUT);
        let route = resolver.resolve().expect("resolve");
        let ready = route.access(REMOTE_ACCESS).with_qp(qp(&resources));
        let ready = ready.expect("INIT");
        let active = Peer {
            connection: ready.connect(&params, TIMEOUT).expect("connect"),
            resources,
        };
        (active, passive.join().expect("passive side"))
    })
}
