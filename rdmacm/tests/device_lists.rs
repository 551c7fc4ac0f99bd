//! Gather lists on real drivers.

mod lab;

use std::thread;

use ibverbs::{BufList, QpOptions, QueuePair, Rc, wr};
use lab::{Endpoint, Peer, Resources, TIMEOUT, assert_no_leaks, one_endpoint_each};
use rdmacm::{ConnectParams, Resolver};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn lists_with_empty_parts_arrive_whole() {
    for endpoint in one_endpoint_each() {
        println!("device: {}", endpoint.name());
        assert_no_leaks(&endpoint, || {
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
                sent.ok().expect("success");
                let count = sent.into_list().map(|list| list.into_bufs().len());
                assert_eq!(count, (!held).then_some(3));
                let received = b.retire();
                received.ok().expect("success");
                assert_eq!(&*received.into_buf().expect("posted"), b"gathered");
            }
        });
    }
}

fn write(mut buf: ibverbs::Buf, bytes: &[u8]) -> ibverbs::Buf {
    buf.set_len(bytes.len());
    buf.copy_from_slice(bytes);
    buf
}

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
            let request = listener.accept(Some(TIMEOUT)).expect("accept");
            let request = request.expect("a request in time");
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
        let ready = route.with_qp(qp(&resources)).expect("INIT");
        let active = Peer {
            connection: ready.connect(&params, TIMEOUT).expect("connect"),
            resources,
        };
        (active, passive.join().expect("passive side"))
    })
}
