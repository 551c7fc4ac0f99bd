//! How requests fail on a connection, on RoCE and on iWARP: the buffer comes back, by a completion
//! or when the queue pair is destroyed.

mod lab;

use std::time::Duration;

use ibverbs::{AccessFlags, Error, QpOptions, RemoteMemory, WcStatus, mw::Type2, wr};
use lab::{PATIENCE, Place, Wired, leaves_nothing, places};

const OPEN: AccessFlags = AccessFlags::REMOTE_READ
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_ATOMIC);
/// How long to look for a completion that may never come.
const LOOK: Duration = Duration::from_millis(500);

/// How the memory of a peer refuses: Soft-RoCE looks first at what the peer's queue pair allows.
const REFUSED: [WcStatus; 2] = [WcStatus::REM_ACCESS_ERR, WcStatus::REM_INV_REQ_ERR];

fn ipv4() -> impl Iterator<Item = (Place, bool)> {
    places()
        .into_iter()
        .filter(|place| place.ip.is_ipv4())
        .map(|place| {
            let iwarp = place.is_iwarp();
            (place, iwarp)
        })
}

/// A region of the peer, of 64 bytes, and 8 of them named with a wrong key.
fn wrong(peer: &Wired) -> (ibverbs::SharedRegion, RemoteMemory) {
    let region = peer.end.pd.shared(64, OPEN).expect("region");
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
    for (place, iwarp) in ipv4() {
        leaves_nothing(&place, || {
            let (mut a, mut b) = place.pair();
            let (region, remote) = wrong(&b);
            a.connection
                .qp_mut()
                .post_send(wr::write(a.end.pd.buf(8).expect("buf"), remote))
                .expect("post");
            let retired = a.retire();
            // On iWARP success says that the message was taken; the fault ends the connection.
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
            let mut seen = [7; 64];
            region.read(0, &mut seen).expect("within");
            assert_eq!(seen, [0; 64], "nothing was written");
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_read_with_a_wrong_key_fails_or_comes_back_with_the_queue_pair() {
    for (place, iwarp) in ipv4() {
        leaves_nothing(&place, || {
            let (mut a, b) = place.pair();
            let (_region, remote) = wrong(&b);
            // On iWARP the peer answers a read by writing.
            let sink = a
                .end
                .pd
                .shared(64, AccessFlags::REMOTE_WRITE)
                .expect("sink");
            let held = a
                .connection
                .qp_mut()
                .hold(&sink)
                .expect("hold")
                .slice(0..8)
                .expect("within");
            a.connection
                .qp_mut()
                .post_send(wr::read(held, remote))
                .expect("post");
            match a.retire_within(if iwarp { LOOK } else { PATIENCE }) {
                Some(retired) if iwarp => assert!(!retired.is_success(), "{retired:?}"),
                Some(retired) => assert!(REFUSED.contains(&retired.status()), "{retired:?}"),
                None => assert!(iwarp, "Soft-RoCE completes it"),
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_message_longer_than_the_receive_fails_at_the_receiver() {
    for (place, iwarp) in ipv4() {
        leaves_nothing(&place, || {
            let (mut a, mut b) = place.pair();
            a.send(&[1; 65]); // the receive has 64
            let received = b.retire();
            let length = [WcStatus::LOC_LEN_ERR, WcStatus::LOC_QP_OP_ERR];
            assert!(length.contains(&received.status()), "{received:?}");
            assert_eq!(received.into_buf().expect("its buffer").capacity(), 64);
            let sent = a.retire();
            assert_eq!(sent.is_success(), iwarp, "{sent:?}");
            assert!(sent.into_buf().is_some());
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_message_that_invalidates_a_wrong_key_fails_at_the_receiver() {
    for (place, _) in ipv4() {
        leaves_nothing(&place, || {
            let (mut a, mut b) = place.pair();
            let (_region, remote) = wrong(&b);
            let message = a.end.pd.buf(8).expect("buf");
            a.connection
                .qp_mut()
                .post_send(wr::send_with_inv(message, remote.rkey))
                .expect("post");
            let received = b.retire();
            assert_eq!(received.status(), WcStatus::REM_INV_REQ_ERR);
            assert_eq!(received.invalidated_rkey(), None);
            assert!(received.into_buf().is_some());
            // Neither device tells the sender: see ci/DRIVERS.md.
            assert!(a.retire().into_buf().is_some());
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_message_arrives_that_invalidates_a_key_of_the_peer() {
    for (place, iwarp) in ipv4() {
        leaves_nothing(&place, || {
            let (mut a, mut b) = place.pair();
            // Soft-iWARP has no windows: there it is the key of a region (ci/DRIVERS.md, fault
            // 40).
            let open = if iwarp {
                OPEN
            } else {
                OPEN | AccessFlags::MW_BIND
            };
            let region = b.end.pd.shared(64, open).expect("region");
            let bound = (!iwarp).then(|| {
                let window = b.end.pd.alloc_mw::<Type2>().expect("window");
                let (bound, binding) = window
                    .bind(&region, AccessFlags::REMOTE_WRITE)
                    .expect("fits");
                b.connection
                    .qp_mut()
                    .post_send(wr::bind(binding))
                    .expect("bind");
                b.retire().ok().expect("bound");
                bound
            });
            let remote = bound
                .as_ref()
                .map_or(region.remote(), ibverbs::mw::BoundWindow::remote);
            if iwarp {
                a.connection
                    .qp_mut()
                    .post_send(wr::write(a.end.pd.buf(8).expect("buf"), remote))
                    .expect("post");
                a.retire().ok().expect("written, or on its way");
            }
            let mut message = a.end.pd.buf(8).expect("buf");
            message.copy_from_slice(b"done now");
            a.connection
                .qp_mut()
                .post_send(wr::send_with_inv(message, remote.rkey))
                .expect("post");
            a.retire().ok().expect("sent");
            let received = b.retire();
            received.ok().expect("it invalidates what it may");
            if let Some(bound) = bound {
                let window = bound
                    .invalidated_by(&received)
                    .expect("the device says which");
                drop(window);
            } else {
                a.connection
                    .qp_mut()
                    .post_send(wr::write(a.end.pd.buf(8).expect("buf"), remote))
                    .expect("post");
                b.expect_disconnected();
            }
            assert_eq!(
                &received.into_buf().expect("posted with one")[..],
                b"done now"
            );
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn what_iwarp_lacks_is_refused_with_the_buffer() {
    for (place, iwarp) in ipv4() {
        leaves_nothing(&place, || {
            let (mut a, b) = place.pair();
            let region = b.end.pd.shared(64, OPEN).expect("region");
            let place = RemoteMemory {
                len: 8,
                ..region.remote()
            };
            let sink = a.end.pd.shared(8, AccessFlags::REMOTE_WRITE).expect("sink");
            let pd = a.end.pd.clone();
            let buf = || pd.buf(8).expect("buf");
            let qp = a.connection.qp_mut();
            let held = qp.hold(&sink).expect("hold");
            let posts: [Result<(), Error>; 4] = [
                qp.post_send(wr::compare_swap(held, place, 0, 1))
                    .map_err(Error::from),
                qp.post_send(wr::fetch_add(held, place, 1))
                    .map_err(Error::from),
                qp.post_send(wr::write_with_imm(buf(), place, 1))
                    .map_err(Error::from),
                qp.post_send(wr::send_with_imm(buf(), 1))
                    .map_err(Error::from),
            ];
            for posted in &posts {
                assert_eq!(posted.is_err(), iwarp, "{posted:?}");
            }
            if iwarp {
                assert_eq!(
                    qp.send_slots_free(),
                    qp.caps().max_send_wr as usize,
                    "nothing stayed in the queue"
                );
                let rejected = qp
                    .post_send(wr::send_with_imm(buf(), 1))
                    .expect_err("no immediate data");
                assert!(rejected.into_payload().is_some());
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_send_to_a_peer_that_is_gone_comes_back_one_way_or_the_other() {
    for (place, _) in ipv4() {
        leaves_nothing(&place, || {
            let (mut a, b) = place.pair();
            drop(b);
            a.expect_disconnected();
            let pool = a.end.pd.pool(1, 8).expect("pool");
            // The queue pair may be in error already: then the post is refused, flushed, or never
            // heard of again.
            if let Ok(()) = a
                .connection
                .qp_mut()
                .post_send(wr::send(pool.take().expect("free")))
            {
                while let Some(retired) = a.retire_within(LOOK) {
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
fn what_a_device_lacks_is_unsupported_and_no_crash() {
    for (place, iwarp) in ipv4() {
        leaves_nothing(&place, || {
            let end = place.end();
            let made = end
                .pd
                .create_qp::<ibverbs::Uc>(&end.cq, &end.cq, QpOptions::default());
            assert_eq!(made.is_err_and(|error| error.is_unsupported()), iwarp);
        });
    }
}
