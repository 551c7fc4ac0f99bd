//! Failing requests of a connection on RoCE and on iWARP. The buffer is returned by a completion,
//! or when the queue pair is destroyed.

use std::time::Duration;

use ibverbs::{AccessFlags, Error, QpOptions, RemoteMemory, WcStatus, mw::Type2, wr};

use crate::lab::{Endpoint, Peer, TIMEOUT, assert_no_leaks, endpoints};

const REMOTE_ACCESS: AccessFlags = AccessFlags::REMOTE_READ
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_ATOMIC);
/// Time to wait for a completion that may never arrive.
const COMPLETION_TIMEOUT: Duration = Duration::from_millis(500);

/// Statuses of a refused access to the peer's memory. Soft-RoCE checks the access flags of the
/// peer's queue pair first.
const REFUSED: [WcStatus; 2] = [WcStatus::REM_ACCESS_ERR, WcStatus::REM_INV_REQ_ERR];

fn ipv4_endpoints() -> impl Iterator<Item = (Endpoint, bool)> {
    endpoints()
        .into_iter()
        .filter(|endpoint| endpoint.ip.is_ipv4())
        .map(|endpoint| {
            let iwarp = endpoint.is_iwarp();
            (endpoint, iwarp)
        })
}

/// Returns a region of 64 bytes of the peer, and 8 bytes of it with a wrong key.
fn with_wrong_key(peer: &Peer) -> (ibverbs::SharedRegion, RemoteMemory) {
    let region = peer.resources.pd.shared(64, REMOTE_ACCESS).expect("region");
    let remote = RemoteMemory {
        len: 8,
        rkey: region.remote().rkey ^ 0x5500,
        ..region.remote()
    };
    (region, remote)
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_write_with_a_wrong_key_ends_the_connection() {
    for (endpoint, iwarp) in ipv4_endpoints() {
        assert_no_leaks(&endpoint, || {
            let (mut a, mut b) = endpoint.pair();
            let (region, remote) = with_wrong_key(&b);
            a.connection
                .qp_mut()
                .post_send(wr::write(a.resources.pd.buf(8).expect("buf"), remote))
                .expect("post");
            let retired = a.retire();
            // On iWARP success means that the message was sent. The fault ends the connection.
            let expected = if iwarp {
                &[WcStatus::SUCCESS][..]
            } else {
                &REFUSED
            };
            assert!(expected.contains(&retired.status()), "{retired:?}");
            assert!(retired.into_buf().is_some());
            if iwarp {
                b.expect_disconnected();
            }
            let mut memory = [7; 64];
            region.read(0, &mut memory).expect("within the region");
            assert_eq!(memory, [0; 64], "nothing is written");
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_read_with_a_wrong_key_never_succeeds() {
    for (endpoint, iwarp) in ipv4_endpoints() {
        assert_no_leaks(&endpoint, || {
            let (mut a, b) = endpoint.pair();
            let (_region, remote) = with_wrong_key(&b);
            // On iWARP the peer answers a READ with a WRITE.
            let sink = a
                .resources
                .pd
                .shared(64, AccessFlags::REMOTE_WRITE)
                .expect("sink");
            let held = a
                .connection
                .qp_mut()
                .hold(&sink)
                .expect("hold")
                .slice(0..8)
                .expect("within the region");
            a.connection
                .qp_mut()
                .post_send(wr::read(held, remote))
                .expect("post");
            match a.retire_within(if iwarp { COMPLETION_TIMEOUT } else { TIMEOUT }) {
                Some(retired) if iwarp => assert!(!retired.is_success(), "{retired:?}"),
                Some(retired) => assert!(REFUSED.contains(&retired.status()), "{retired:?}"),
                None => assert!(iwarp, "Soft-RoCE completes the request"),
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_message_longer_than_the_receive_fails_at_the_receiver() {
    for (endpoint, iwarp) in ipv4_endpoints() {
        assert_no_leaks(&endpoint, || {
            let (mut a, mut b) = endpoint.pair();
            a.send(&[1; 65]); // the receive has 64 bytes
            let received = b.retire();
            let expected = [WcStatus::LOC_LEN_ERR, WcStatus::LOC_QP_OP_ERR];
            assert!(expected.contains(&received.status()), "{received:?}");
            assert_eq!(
                received.into_buf().expect("the posted buffer").capacity(),
                64
            );
            let sent = a.retire();
            // On iWARP, the send succeeds when its bytes are sent, unless the error comes first.
            assert!(iwarp || !sent.is_success(), "{sent:?}");
            assert!(sent.into_buf().is_some());
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn send_with_inv_of_a_wrong_key_fails_at_the_receiver() {
    for (endpoint, _) in ipv4_endpoints() {
        assert_no_leaks(&endpoint, || {
            let (mut a, mut b) = endpoint.pair();
            let (_region, remote) = with_wrong_key(&b);
            let message = a.resources.pd.buf(8).expect("buf");
            a.connection
                .qp_mut()
                .post_send(wr::send_with_inv(message, remote.rkey))
                .expect("post");
            let received = b.retire();
            assert_eq!(received.status(), WcStatus::REM_INV_REQ_ERR);
            assert_eq!(received.invalidated_rkey(), None);
            assert!(received.into_buf().is_some());
            // No device reports this to the sender (see docs/drivers.md).
            assert!(a.retire().into_buf().is_some());
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn send_with_inv_invalidates_a_key_of_the_peer() {
    for (endpoint, iwarp) in ipv4_endpoints() {
        assert_no_leaks(&endpoint, || {
            let (mut a, mut b) = endpoint.pair();
            // Soft-iWARP has no memory windows, so the key of a region is invalidated
            // (docs/drivers.md, fault 40).
            let access = if iwarp {
                REMOTE_ACCESS
            } else {
                REMOTE_ACCESS | AccessFlags::MW_BIND
            };
            let region = b.resources.pd.shared(64, access).expect("region");
            let bound = (!iwarp).then(|| {
                let window = b.resources.pd.alloc_mw::<Type2>().expect("window");
                let (bound, binding) = window
                    .bind(&region, AccessFlags::REMOTE_WRITE)
                    .expect("fits");
                b.connection
                    .qp_mut()
                    .post_send(wr::bind(binding))
                    .expect("bind");
                b.retire().check().expect("bound");
                bound
            });
            let remote = bound
                .as_ref()
                .map_or(region.remote(), ibverbs::mw::BoundWindow::remote);
            if iwarp {
                a.connection
                    .qp_mut()
                    .post_send(wr::write(a.resources.pd.buf(8).expect("buf"), remote))
                    .expect("post");
                a.retire().check().expect("written or in flight");
            }
            let mut message = a.resources.pd.buf(8).expect("buf");
            message.copy_from_slice(b"done now");
            a.connection
                .qp_mut()
                .post_send(wr::send_with_inv(message, remote.rkey))
                .expect("post");
            a.retire().check().expect("sent");
            let received = b.retire();
            received.check().expect("received");
            if let Some(bound) = bound {
                let window = bound
                    .invalidated_by(&received)
                    .expect("the completion has the invalidated key");
                drop(window);
            } else {
                a.connection
                    .qp_mut()
                    .post_send(wr::write(a.resources.pd.buf(8).expect("buf"), remote))
                    .expect("post");
                b.expect_disconnected();
            }
            assert_eq!(
                &received.into_buf().expect("the posted buffer")[..],
                b"done now"
            );
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn unsupported_requests_on_iwarp_return_their_buffers() {
    for (endpoint, iwarp) in ipv4_endpoints() {
        assert_no_leaks(&endpoint, || {
            let (mut a, b) = endpoint.pair();
            let region = b.resources.pd.shared(64, REMOTE_ACCESS).expect("region");
            let remote = RemoteMemory {
                len: 8,
                ..region.remote()
            };
            let sink = a
                .resources
                .pd
                .shared(8, AccessFlags::REMOTE_WRITE)
                .expect("sink");
            let pd = a.resources.pd.clone();
            let buf = || pd.buf(8).expect("buf");
            let qp = a.connection.qp_mut();
            let held = qp.hold(&sink).expect("hold");
            let posts: [Result<(), Error>; 4] = [
                qp.post_send(wr::compare_swap(held, remote, 0, 1))
                    .map_err(Error::from),
                qp.post_send(wr::fetch_add(held, remote, 1))
                    .map_err(Error::from),
                qp.post_send(wr::write_with_imm(buf(), remote, 1))
                    .map_err(Error::from),
                qp.post_send(wr::send_with_imm(buf(), 1))
                    .map_err(Error::from),
            ];
            for result in &posts {
                assert_eq!(result.is_err(), iwarp, "{result:?}");
            }
            if iwarp {
                assert_eq!(
                    qp.send_slots_free(),
                    qp.caps().max_send_wr as usize,
                    "no request is queued"
                );
                let rejected = qp
                    .post_send(wr::send_with_imm(buf(), 1))
                    .expect_err("iWARP has no immediate data");
                assert!(rejected.into_payload().is_some());
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_send_after_a_disconnect_returns_its_buffer() {
    for (endpoint, _) in ipv4_endpoints() {
        assert_no_leaks(&endpoint, || {
            let (mut a, b) = endpoint.pair();
            drop(b);
            a.expect_disconnected();
            let pool = a.resources.pd.pool(1, 8).expect("pool");
            // The queue pair may already be in the error state. Then the request is refused or
            // flushed, or never completes.
            if let Ok(()) = a
                .connection
                .qp_mut()
                .post_send(wr::send(pool.take().expect("free")))
            {
                while let Some(retired) = a.retire_within(COMPLETION_TIMEOUT) {
                    assert!(!retired.is_success(), "{retired:?}");
                }
            }
            drop(a);
            assert_eq!(pool.available(), 1);
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn unsupported_transports_are_reported() {
    for (endpoint, iwarp) in ipv4_endpoints() {
        assert_no_leaks(&endpoint, || {
            let resources = endpoint.resources();
            let result = resources.pd.create_qp::<ibverbs::Uc>(
                &resources.cq,
                &resources.cq,
                QpOptions::default(),
            );
            assert_eq!(result.is_err_and(|error| error.is_unsupported()), iwarp);
        });
    }
}
