//! Posts to queue pairs that are not connected: the error names the state and the remedy.

use std::error::Error as _;
use std::io;

use crate::fixture::{Fake, PROFILES, Pair, pairs, parents, path, small};
use fake_provider::{PostFault, Profile, Queue, Verb};
use ibverbs::{
    AhAttr, DatagramAttr, Errno, Error, ErrorKind, PostError, Psn, Qkey, QpState, QueuePair, Rc,
    Rejected, Uc, Ud, qp::QpChange, wr,
};

/// Asserts that the post was refused because of the state. Returns the message.
#[track_caller]
fn refused<P>(posted: Result<(), Rejected<P>>, state: QpState) -> String {
    let rejected = posted.expect_err("the state does not allow the post");
    assert_eq!(rejected.error().errno(), Some(Errno(libc::EINVAL)));
    check_text(&rejected.to_string(), state);
    let source = rejected.source().expect("the error of the system");
    assert_eq!(source.to_string(), "os error 22");
    let error = Error::from(rejected);
    assert_eq!(error.kind(), ErrorKind::WrongState);
    assert_eq!(error.errno(), Some(Errno(libc::EINVAL)));
    let text = error.to_string();
    check_text(&text, state);
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotConnected);
    text
}

#[track_caller]
fn check_text(text: &str, state: QpState) {
    assert!(text.contains(&format!("in state {state}")), "{text}");
    assert_eq!(text.matches("; help: ").count(), 1, "{text}");
    assert_eq!(text.matches("Invalid argument").count(), 1, "{text}");
}

/// Moves a queue pair from INIT to RTR.
fn to_rtr(qp: &mut QueuePair<Rc>) {
    let gid = qp.pd().context().gids(1).expect("GID table")[0];
    let change = QpChange::to(QpState::RTR)
        .address(AhAttr::for_gid(1, gid.index, gid.gid))
        .path_mtu(path().mtu)
        .dest_qpn(qp.qp_num())
        .rq_psn(Psn(0))
        .max_dest_rd_atomic(1)
        .min_rnr_timer(12);
    qp.modify(&change).expect("RTR state");
}

#[test]
fn posts_before_the_connection_name_state_and_remedy() {
    for profile in PROFILES {
        let pair = Pair::new(profile);
        let create = || {
            pair.pd
                .create_qp::<Rc>(&pair.cq, &pair.cq, small())
                .expect("queue pair")
        };
        let send = || wr::send(wr::Inline(b"hello"));
        let mut qp = create();
        let text = refused(qp.post_recv(wr::recv(wr::Empty)), QpState::RESET);
        assert!(text.contains("`init` and `connect`"), "{text}");
        let text = refused(qp.post_send(send()), QpState::RESET);
        assert!(text.contains("`init` and `connect`"), "{text}");
        assert_eq!(
            text.contains("may have been posted"),
            profile.extended_qp,
            "{text}"
        );
        for to_state in [|_: &mut QueuePair<Rc>| (), to_rtr] {
            let mut qp = create();
            qp.init(&path()).expect("INIT state");
            to_state(&mut qp);
            let state = qp.state().expect("query");
            let text = refused(qp.post_send(send()), state);
            assert!(text.contains("need the state RTS"), "{text}");
            qp.post_recv(wr::recv(wr::Empty))
                .expect("receives can be posted");
        }
    }
}

#[test]
fn batches_before_the_connection_name_state_and_remedy() {
    for pair in pairs(PROFILES) {
        let mut qp = pair
            .pd
            .create_qp::<Uc>(&pair.cq, &pair.cq, small())
            .expect("queue pair");
        let buf = pair.buf(b"kept");
        let sent = qp.batch(|batch| -> Result<(), Error> {
            batch.send(wr::send(buf))?;
            Ok(())
        });
        let received = qp.recv_batch(|batch| -> Result<(), Error> {
            batch.recv(wr::recv(wr::Empty))?;
            Ok(())
        });
        for result in [sent, received] {
            let error = result.expect_err("not connected");
            assert_eq!(error.kind(), ErrorKind::WrongState);
            check_text(&error.to_string(), QpState::RESET);
            assert!(error.to_string().contains("UC queue pair"), "{error}");
        }
    }
}

#[test]
fn datagram_posts_before_start_name_state_and_remedy() {
    let fake = Fake::new(Profile::RXE);
    let (_, pd, cq) = parents(&fake);
    let mut qp = pd.create_qp::<Ud>(&cq, &cq, small()).expect("queue pair");
    let text = refused(qp.post_recv(wr::recv(wr::Empty)), QpState::RESET);
    assert!(text.contains("with `start`"), "{text}");
    qp.start(&DatagramAttr::new(1, Qkey(7))).expect("RTS state");
    qp.post_recv(wr::recv(wr::Empty)).expect("started");
}

#[test]
fn xrc_sends_before_the_connection_name_state_and_remedy() {
    let fake = Fake::new(Profile {
        more_verbs: true,
        extended_qp: false,
        ..Profile::RXE
    });
    let (_, pd, cq) = parents(&fake);
    let mut qp = pd.create_xrc_send_qp(&cq, small()).expect("queue pair");
    let request = wr::send(wr::Inline(b"hello")).for_srq(ibverbs::xrc::SrqNum(1));
    let text = refused(qp.post_send(request), QpState::RESET);
    assert!(text.contains("`init` and `connect`"), "{text}");
}

#[test]
fn posts_in_the_error_state_name_the_remedy() {
    for mut pair in pairs(PROFILES) {
        pair.a.to_error().expect("ERR state");
        for queue in [Queue::Send, Queue::Recv] {
            pair.fake.fail_post(PostFault {
                queue,
                at: 0,
                errno: libc::EINVAL,
                sets_bad_wr: true,
                executed: false,
            });
        }
        let send = wr::send(wr::Inline(b"hello"));
        for text in [
            refused(pair.a.post_send(send), QpState::ERR),
            refused(pair.a.post_recv(wr::recv(wr::Empty)), QpState::ERR),
        ] {
            assert!(text.contains("destroy it and connect a new one"), "{text}");
        }
        drop(pair.retire());
    }
}

#[test]
fn refusals_for_other_reasons_keep_their_kind() {
    for mut pair in pairs(PROFILES) {
        let fault = PostFault {
            queue: Queue::Recv,
            at: 0,
            errno: libc::ENOMEM,
            sets_bad_wr: true,
            executed: false,
        };
        pair.fake.fail_post(fault);
        let rejected = pair.a.post_recv(wr::recv(wr::Empty)).expect_err("fault");
        let error = Error::from(rejected);
        assert_eq!(error.kind(), ErrorKind::Os);
        assert_eq!(
            error.message(),
            format!(
                "ibv_post_recv: RC queue pair on {} in state RTS: Cannot allocate memory (ENOMEM)",
                pair.fake.name()
            )
        );
        assert!(error.help().is_some());
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::OutOfMemory);
        // The state cannot be read, for example because the device was removed.
        pair.fake.fail_post(fault);
        pair.fake.fail_next(Verb::QueryQp, libc::EIO);
        let rejected = pair.a.post_recv(wr::recv(wr::Empty)).expect_err("fault");
        assert_eq!(rejected.error(), PostError::Refused(Errno(libc::ENOMEM)));
        assert!(!rejected.to_string().contains("in state"), "{rejected}");
    }
}

#[test]
fn posts_over_iwarp_name_the_connection_manager_or_the_failure() {
    let mut pair = Pair::new(Profile::SIW);
    let created = pair.pd.create_qp::<Rc>(&pair.cq, &pair.cq, small());
    let mut qp = created.expect("queue pair");
    let send = || wr::send(wr::Inline(b"hello"));
    let text = refused(qp.post_send(send()), QpState::RESET);
    assert!(text.contains("with rdma_cm first"), "{text}");
    pair.a.to_error().expect("ERR state");
    pair.fake.fail_post(PostFault {
        queue: Queue::Send,
        at: 0,
        errno: libc::EINVAL,
        sets_bad_wr: true,
        executed: false,
    });
    let text = refused(pair.a.post_send(send()), QpState::ERR);
    assert!(text.contains("destroy it and connect a new one"), "{text}");
}
