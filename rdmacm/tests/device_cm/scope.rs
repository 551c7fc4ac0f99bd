//! Borrowed memory on connections of every device.

use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{
    AccessFlags, DuplexTransport, Error, ErrorKind, QpState, QueuePair, Rc, device::TransportType,
    qp::QpChange, wr,
};
use rdmacm::{ConnectParams, ListenOptions, Resolver};

use crate::lab::post::UdPeer;
use crate::lab::{
    Endpoint, Peer, Resources, TIMEOUT, accept, connect, endpoints, leak_checked, request,
};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn borrowed_memory_is_sent_and_received() {
    for endpoint in leak_checked(endpoints()) {
        let (mut a, mut b) = endpoint.pair();
        let message: Vec<u8> = (0..=255).cycle().take(50_000).collect();
        let mut reply = vec![0_u8; 60_000];
        let big = b.resources.pd.buf(50_000).expect("buffer");
        b.connection
            .qp_mut()
            .post_recv(wr::recv(big))
            .expect("receive");
        let (qp, cq) = (a.connection.qp_mut(), &mut a.resources.cq);
        qp.scope(|scope| {
            let reply = scope.lend_mut(&mut reply)?;
            let message = scope.lend(&message)?;
            // The receive that each side has posted takes the first, short message.
            scope.post_send(wr::send(message.clone().slice(0..8).expect("within")))?;
            scope.post_send(wr::send(message))?;
            scope.post_recv(wr::recv(reply))?;
            assert_eq!(b.retire().received_len(), 8);
            let received = b.retire();
            received.check().expect("received");
            b.send(b"uses the receive posted earlier");
            let echo = received.into_buf().expect("the posted buffer");
            b.connection
                .qp_mut()
                .post_send(wr::send(echo))
                .expect("echo");
            scope.wait(cq, TIMEOUT, |item| {
                item.expect("one queue pair").check().expect("success");
            })
        })
        .expect("all retired");
        assert_eq!(reply[..50_000], message);
        assert!(reply[50_000..].iter().all(|&byte| byte == 0));
        for _ in 0..2 {
            b.retire().check().expect("sent");
        }
        b.receive();
        a.send(b"still connected");
        a.retire().check().expect("sent");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn connections_send_memory_that_was_lent_once() {
    for endpoint in leak_checked(endpoints()) {
        let listener = endpoint.listen();
        let address = listener.local_addr();
        let first = endpoint.resources();
        let second = Resources {
            pd: first.pd.clone(),
            cq: endpoint.resources().cq,
        };
        let mut pairs = [first, second].map(|resources| {
            thread::scope(|scope| {
                let passive = scope.spawn(|| accept(&listener, resources, b""));
                let active = connect(address, endpoint.resources(), b"");
                (passive.join().expect("passive side"), active)
            })
        });
        let [(one, to_one), (two, to_two)] = &mut pairs;
        let message = *b"sent to two peers";
        let deadline = Instant::now() + TIMEOUT;
        one.connection
            .qp_mut()
            .scope(|scope| {
                let lent = scope.lend(&message)?;
                let mut joined = scope.join(two.connection.qp_mut())?;
                scope.post_send(wr::send(lent.clone()))?;
                joined.post_send(wr::send(lent))?;
                while scope.lent_in_flight() > 0 && Instant::now() < deadline {
                    for completion in one.resources.cq.poll()? {
                        scope.retire(completion)?.check()?;
                    }
                    for completion in two.resources.cq.poll()? {
                        joined.retire(completion)?.check()?;
                    }
                }
                Ok::<(), Error>(())
            })
            .expect("both complete in time");
        for client in [to_one, to_two] {
            let received = client.retire();
            received.check().expect("received");
            assert_eq!(received.into_buf().as_deref(), Some(&message[..]));
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn late_messages_do_not_write_to_borrowed_memory() {
    for endpoint in leak_checked(endpoints()) {
        let (mut a, mut b) = endpoint.pair();
        let mut memory = vec![1_u8; 1 << 20];
        b.send(b"uses the receive posted earlier");
        let mut early = b.resources.pd.buf(1 << 20).expect("buffer");
        early.fill(7);
        let (qp, cq) = (a.connection.qp_mut(), &mut a.resources.cq);
        let ended = qp.scope(|scope| {
            let lent = scope.lend_mut(&mut memory)?;
            scope.post_recv(wr::recv(lent))?;
            // The message is in flight when the scope ends, or is about to be.
            b.connection.qp_mut().post_send(wr::send(early))?;
            scope.wait(cq, Duration::ZERO, |_| ())
        });
        memory.fill(2);
        assert_eq!(ended.is_err(), a.connection.qp().is_destroyed());
        std::thread::sleep(Duration::from_millis(200));
        assert!(memory.iter().all(|&byte| byte == 2));
        a.connection.disconnect().expect("disconnect");
        let event = b.connection.wait_event(Some(TIMEOUT)).expect("event");
        assert!(event.is_some(), "the peer must learn of the end");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn an_iwarp_read_needs_shared_memory() {
    for endpoint in leak_checked(endpoints()) {
        let (mut a, b) = endpoint.pair();
        let region = b
            .resources
            .pd
            .shared(64, AccessFlags::REMOTE_READ)
            .expect("region");
        let mut memory = [0_u8; 64];
        let ended = a.connection.qp_mut().scope(|scope| {
            let lent = scope.lend_mut(&mut memory)?;
            scope.post_send(wr::read(lent, region.remote()))?;
            scope.wait(&mut a.resources.cq, TIMEOUT, |_| ())
        });
        if b.connection.transport() == TransportType::IWARP {
            let error = ended.expect_err("the memory is not shared");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(!a.connection.qp().is_destroyed(), "nothing was posted");
        } else {
            ended.expect("read");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_region_is_reclaimed_after_its_connection_is_dropped() {
    for endpoint in leak_checked(endpoints()) {
        let (_a, b) = endpoint.pair();
        let region = b
            .resources
            .pd
            .shared(64, AccessFlags::REMOTE_WRITE)
            .expect("region");
        let in_use = region.try_into_buf().expect_err("the connection lives");
        assert_eq!(in_use.error().kind(), ErrorKind::Mismatch);
        let Peer {
            connection,
            resources,
        } = b;
        drop(connection);
        assert_eq!(
            in_use
                .into_region()
                .try_into_buf()
                .expect("no queue pair is left")[..],
            [0; 64]
        );
        drop(resources);
    }
}

/// Lets a scope destroy a queue pair in INIT or a later state.
fn destroy<T: DuplexTransport>(qp: &mut QueuePair<T>) {
    let mut memory = [0_u8; 64];
    let ended = qp.scope(|scope| {
        let lent = scope.lend_mut(&mut memory)?;
        scope.post_recv(wr::recv(lent))?;
        Ok::<(), Error>(())
    });
    ended.expect_err("in flight");
    assert!(qp.is_destroyed());
}

/// Returns a queue pair that a scope has destroyed.
fn destroyed(resources: &Resources) -> QueuePair<Rc> {
    let mut qp = resources.qp();
    let init = QpChange::to(QpState::INIT).port_num(1).pkey_index(0);
    qp.modify(&init.access(AccessFlags::empty())).expect("INIT");
    destroy(&mut qp);
    qp
}

fn check_refused<T, E: Into<Error>>(what: &str, result: Result<T, E>) {
    let error: Error = match result {
        Ok(_) => panic!("{what}: no error"),
        Err(error) => error.into(),
    };
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{what}: {error}");
    assert!(
        error.to_string().contains("a scope has destroyed"),
        "{what}: {error}"
    );
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_destroyed_queue_pair_connects_to_nothing() {
    for endpoint in leak_checked(endpoints()) {
        let (listener, resources) = (endpoint.listen(), endpoint.resources());
        let address = listener.local_addr();
        let resolve = || {
            Resolver::new(address)
                .timeout(TIMEOUT)
                .resolve()
                .expect("route")
        };
        let params = ConnectParams::new();
        check_refused("with_qp", resolve().with_qp(destroyed(&resources)));
        check_refused(
            "request",
            resolve().request(&destroyed(&resources), &params),
        );
        for replace in [false, true] {
            let mut ready = resolve().with_qp(resources.qp()).expect("INIT");
            destroy(ready.qp_mut());
            if replace {
                *ready.qp_mut() = destroyed(&resources);
            }
            check_refused("start", ready.start(&params));
            let mut ready = resolve().with_qp(resources.qp()).expect("INIT");
            destroy(ready.qp_mut());
            check_refused("connect", ready.connect(&params, TIMEOUT));
        }

        let peer = || {
            resolve()
                .with_qp(resources.qp())
                .expect("INIT")
                .start(&params)
        };
        let first = peer().expect("started");
        check_refused("with_qp", request(&listener).with_qp(destroyed(&resources)));
        let second = peer().expect("started");
        let accepted = request(&listener).accept_external(&destroyed(&resources), &params);
        check_refused("accept_external", accepted);
        let third = peer().expect("started");
        let mut ready = request(&listener).with_qp(resources.qp()).expect("INIT");
        destroy(ready.qp_mut());
        check_refused("accept", ready.start(&params));
        drop((first, second, third));

        let (mut a, _b) = endpoint.pair();
        destroy(a.connection.qp_mut());
        a.connection.disconnect().expect("no use of the queue pair");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_destroyed_queue_pair_receives_no_datagrams() {
    for endpoint in leak_checked(endpoints().into_iter().filter(Endpoint::has_datagrams)) {
        let address = (endpoint.ip, 0).into();
        let listener = ListenOptions::new().bind_datagram(address).expect("listen");
        let resolver = Resolver::new(listener.local_addr()).timeout(TIMEOUT);
        let route = resolver.resolve_datagram().expect("route");
        let mut peer = UdPeer::new(&endpoint);
        route.start_qp(&mut peer.qp).expect("RTS");
        destroy(&mut peer.qp);
        check_refused("start_qp", route.start_qp(&mut peer.qp));
        let querying = route.start_query(b"").expect("sent");
        let request = listener
            .next_request(Some(TIMEOUT))
            .expect("accept")
            .expect("in time");
        check_refused("start_qp", request.start_qp(&mut peer.qp));
        check_refused("accept", request.accept(&peer.qp, b""));
        drop(querying);
    }
}
