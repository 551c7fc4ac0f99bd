//! Posts to queue pairs that are not connected or have failed: the error names the state and the
//! remedy. `docs/drivers.md` lists the posts that each driver accepts.

use std::convert::Infallible;

use ibverbs::{
    AhAttr, ConnectedDuplexTransport, Context, DuplexTransport, Errno, Error, ErrorKind, PostError,
    ProtectionDomain, Psn, Qkey, QpState, QpType, QueuePair, Rc, Rejected, Uc, Ud,
    qp::QpChange,
    wr::{self, Destination},
};

use crate::lab::{self, extended_and_classic, for_each_device_with, is_iwarp, is_mlx5, path, verb};

const STATES: [QpState; 4] = [QpState::RESET, QpState::INIT, QpState::RTR, QpState::ERR];

/// Asserts that the driver reported that the send is refused but queued, because of the state.
#[track_caller]
fn expect_in_doubt<P>(posted: Result<(), Rejected<P>>, context: &Context, state: QpState) {
    let rejected = posted.expect_err("the state does not allow the post");
    // siw has one state for RESET, INIT and RTR and reports it as INIT.
    let (errno, shown) = if is_iwarp(context) {
        (Errno(libc::ENOTCONN), QpState::INIT)
    } else {
        (Errno(libc::EINVAL), state)
    };
    if is_mlx5(context) {
        // libmlx5 checks the state first. Its classic verbs name the request, and that for sends
        // reports ENOMEM.
        let expected = [
            PostError::Refused(errno),
            PostError::Refused(Errno(libc::ENOMEM)),
            PostError::InDoubt(errno),
        ];
        assert!(expected.contains(&rejected.error()), "{rejected}");
    } else {
        assert_eq!(rejected.error(), PostError::InDoubt(errno), "{rejected}");
    }
    let error = Error::from(rejected);
    assert_eq!(error.kind(), ErrorKind::WrongState, "{error}");
    let message = error.message();
    assert!(message.contains(&format!("in state {shown}")), "{error}");
    let remedy = error.help().expect("a remedy");
    assert_eq!(remedy.contains("iWARP"), is_iwarp(context), "{remedy}");
}

/// Posts in each state that a queue pair can be moved to without a peer.
fn post_in_each_state<T: DuplexTransport>(
    context: &Context,
    pd: &ProtectionDomain,
    enter: impl Fn(&mut QueuePair<T>, QpState),
    mut send: impl FnMut(&mut QueuePair<T>) -> Result<(), Rejected<Infallible>>,
) {
    let cq = lab::cq(context);
    for options in extended_and_classic() {
        for state in STATES {
            let mut qp = pd.create_qp::<T>(&cq, &cq, options).expect("queue pair");
            enter(&mut qp, state);
            let receive = wr::recv(pd.buf(64).expect("buffer"));
            if state == QpState::RESET && !is_iwarp(context) {
                expect_in_doubt(qp.post_recv(receive), context, state);
            } else {
                qp.post_recv(receive).expect("receives are accepted");
            }
            if state == QpState::ERR {
                if is_mlx5(context) {
                    // libmlx5 accepts sends in ERR only if the queue pair has been in RTS.
                    expect_in_doubt(send(&mut qp), context, state);
                } else {
                    send(&mut qp).expect("both drivers accept sends in ERR");
                }
                continue;
            }
            expect_in_doubt(send(&mut qp), context, state);
            if is_iwarp(context) {
                send(&mut qp).expect("siw rings the doorbell for the first send only");
            } else {
                expect_in_doubt(send(&mut qp), context, state);
            }
            // The queue pair keeps the receive and the sends. Inline data has no buffer.
            let reclaimed = qp.destroy().expect("destroy");
            let receives = usize::from(!(is_mlx5(context) && state == QpState::RESET));
            assert_eq!(
                (reclaimed.sends.len(), reclaimed.recvs.len()),
                (0, receives)
            );
        }
    }
}

/// Moves a connected queue pair from RESET to `state`.
fn enter<T: ConnectedDuplexTransport>(qp: &mut QueuePair<T>, state: QpState) {
    let path = path(qp.pd().context());
    if state != QpState::RESET {
        qp.init(&path).expect("INIT state");
    }
    if state == QpState::RTR {
        let gids = qp.pd().context().gids(1).expect("GID table");
        let own = gids
            .iter()
            .find(|entry| Some(entry.index) == path.sgid_index)
            .expect("the GID of the path");
        let mut change = QpChange::to(QpState::RTR)
            .address(AhAttr::for_gid(1, own.index, own.gid))
            .path_mtu(path.mtu)
            .dest_qpn(qp.qp_num())
            .rq_psn(Psn(77));
        if T::QP_TYPE == QpType::RC {
            change = change.max_dest_rd_atomic(1).min_rnr_timer(12);
        }
        qp.modify(&change).expect("RTR state");
    }
    if state == QpState::ERR {
        qp.to_error().expect("ERR state");
    }
}

fn enter_datagram(qp: &mut QueuePair<Ud>, state: QpState) {
    if state != QpState::RESET {
        let init = QpChange::to(QpState::INIT)
            .pkey_index(0)
            .port_num(1)
            .qkey(Qkey(7));
        qp.modify(&init).expect("INIT state");
    }
    if state != QpState::RESET && state != QpState::INIT {
        qp.modify(&QpChange::to(state)).expect("RTR or ERR state");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn refused_post_names_state_and_remedy() {
    const MESSAGE: wr::Inline<'static> = wr::Inline(b"hello");
    for_each_device_with(&[verb::RC], |context, pd| {
        post_in_each_state::<Rc>(context, pd, enter, |qp| qp.post_send(wr::send(MESSAGE)));
        if is_iwarp(context) {
            return;
        }
        post_in_each_state::<Uc>(context, pd, enter, |qp| qp.post_send(wr::send(MESSAGE)));
        let gids = context.gids(1).expect("GID table");
        let own = gids.iter().find(|entry| !entry.gid.is_link_local());
        let own = own.expect("a routable GID");
        let handle = pd
            .create_ah(&AhAttr::for_gid(1, own.index, own.gid))
            .expect("address handle");
        post_in_each_state::<Ud>(context, pd, enter_datagram, |qp| {
            let to = Destination {
                address: qp.hold_address(&handle).expect("hold"),
                qpn: qp.qp_num(),
                qkey: Qkey(7),
            };
            qp.post_send(wr::send(MESSAGE).to(to))
        });
    });
}
