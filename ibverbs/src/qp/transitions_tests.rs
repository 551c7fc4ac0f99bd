//! Tests of the state table against the specification, and of its messages.

use super::*;

const ALL: [Transport; 8] = [
    Transport::Rc,
    Transport::Uc,
    Transport::Ud,
    Transport::RawPacket,
    Transport::XrcSend,
    Transport::XrcRecv,
    Transport::Srd,
    Transport::DcInitiator,
];

#[test]
fn transitions_are_those_of_the_specification() {
    for transport in ALL {
        let exists = |from, to| transition(transport, from, to).is_some();
        for from in STATES {
            assert!(exists(from, QpState::RESET), "{transport} {from}");
            assert_eq!(
                exists(from, QpState::ERR),
                from != QpState::RESET,
                "{transport} {from}"
            );
        }
        // No state can be skipped, and the only way back is RESET.
        for (from, to) in [
            (0, 2),
            (0, 3),
            (1, 3),
            (2, 1),
            (3, 2),
            (3, 1),
            (6, 1),
            (6, 3),
            (5, 4),
        ] {
            assert!(
                !exists(STATES[from], STATES[to]),
                "{transport} {} {}",
                STATES[from],
                STATES[to]
            );
        }
        for (from, to) in [(0, 1), (1, 1), (1, 2), (2, 3), (3, 3)] {
            assert!(
                exists(STATES[from], STATES[to]),
                "{transport} {} {}",
                STATES[from],
                STATES[to]
            );
        }
        let recovers = [Transport::Uc, Transport::Ud, Transport::Srd].contains(&transport);
        assert_eq!(exists(QpState::SQE, QpState::RTS), recovers, "{transport}");
        assert_eq!(
            exists(QpState::RTS, QpState::SQD),
            ![Transport::RawPacket, Transport::DcInitiator].contains(&transport),
            "{transport}"
        );
    }
}

#[test]
fn connect_sets_the_required_attributes() {
    let uc = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    let rc = uc | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    let retry = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    for (transport, rtr, rts) in [
        (Transport::Rc, rc, retry | IBV_QP_SQ_PSN),
        (Transport::Uc, uc, IBV_QP_SQ_PSN),
    ] {
        assert_eq!(
            required_mask(transport, QpState::INIT, QpState::RTR),
            rtr | IBV_QP_STATE
        );
        assert_eq!(
            required_mask(transport, QpState::RTR, QpState::RTS),
            rts | IBV_QP_STATE
        );
        let init = START | IBV_QP_ACCESS_FLAGS;
        assert_eq!(
            violation(
                transport,
                QpState::RESET,
                QpState::INIT,
                init | IBV_QP_STATE
            ),
            None
        );
    }
    let datagram = START | IBV_QP_QKEY;
    assert_eq!(
        violation(Transport::Ud, QpState::RESET, QpState::INIT, datagram),
        None
    );
    assert_eq!(
        violation(Transport::Ud, QpState::INIT, QpState::RTR, 0),
        None
    );
    assert_eq!(
        violation(Transport::Ud, QpState::RTR, QpState::RTS, IBV_QP_SQ_PSN),
        None
    );
    // SRD differs from UD in one attribute.
    let rts = IBV_QP_SQ_PSN | IBV_QP_RNR_RETRY;
    let to_rts = |transport| violation(transport, QpState::RTR, QpState::RTS, rts);
    assert_eq!(to_rts(Transport::Srd), None);
    assert!(to_rts(Transport::Ud).is_some());
    assert_eq!(
        violation(
            Transport::RawPacket,
            QpState::RESET,
            QpState::INIT,
            IBV_QP_PORT
        ),
        None
    );
}

/// The table of the kernel (`qp_state_table` in `drivers/infiniband/core/verbs.c`), and the
/// lengths of queues, which drivers check.
#[test]
fn optional_attributes_are_those_of_the_kernel() {
    use Transport::{RawPacket, Rc, Srd, Uc, Ud, XrcRecv, XrcSend};
    let access = IBV_QP_ACCESS_FLAGS;
    let path = IBV_QP_ALT_PATH | access | IBV_QP_PKEY_INDEX;
    let datagram = IBV_QP_PKEY_INDEX | IBV_QP_QKEY;
    let running = IBV_QP_CUR_STATE | access | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
    let drained = IBV_QP_AV | path | IBV_QP_PATH_MIG_STATE;
    let reliable = IBV_QP_PORT | IBV_QP_TIMEOUT;
    let sends = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    let responds = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    let (qkey, rate, rnr) = (
        IBV_QP_CUR_STATE | IBV_QP_QKEY,
        IBV_QP_RATE_LIMIT,
        IBV_QP_MIN_RNR_TIMER,
    );
    // INIT to RTR, RTR to RTS, SQD to SQD, SQE to RTS.
    let table = [
        (
            Rc,
            path,
            running | rnr,
            Some(drained | reliable | sends | responds),
            None,
        ),
        (
            Uc,
            path,
            running,
            Some(drained),
            Some(IBV_QP_CUR_STATE | access),
        ),
        (Ud, datagram, qkey, Some(datagram), Some(qkey)),
        (
            Srd,
            datagram,
            qkey | IBV_QP_RNR_RETRY,
            Some(datagram),
            Some(qkey),
        ),
        (RawPacket, 0, rate, None, None),
        (
            XrcSend,
            path,
            running,
            Some(drained | reliable | sends),
            None,
        ),
        (
            XrcRecv,
            path,
            running | rnr,
            Some(drained | reliable | responds),
            None,
        ),
    ];
    for (transport, to_rtr, to_rts, in_sqd, from_sqe) in table {
        let lengths = when(![Srd, XrcRecv].contains(&transport), IBV_QP_CAP);
        let check = |from, to, expected: Option<u32>| {
            let found = transition(transport, from, to).map(|transition| transition.optional);
            let expected = expected.map(|expected| expected | lengths);
            assert_eq!(found, expected, "{transport} {from} {to}");
        };
        check(QpState::INIT, QpState::RTR, Some(to_rtr));
        check(QpState::RTR, QpState::RTS, Some(to_rts));
        check(QpState::SQD, QpState::SQD, in_sqd);
        check(QpState::SQE, QpState::RTS, from_sqe);
        for to in [QpState::RESET, QpState::ERR] {
            let stopped = transition(transport, QpState::RTS, to).expect("a transition");
            assert_eq!((stopped.required, stopped.optional), (0, 0));
        }
        let first = transition(transport, QpState::RESET, QpState::INIT);
        assert_eq!(first.expect("a transition").optional, 0);
    }
}

#[test]
fn dc_target_only_starts() {
    let transport = Transport::DcTarget;
    for from in STATES {
        for to in STATES {
            let starts = [
                (QpState::RESET, QpState::INIT),
                (QpState::INIT, QpState::RTR),
            ];
            let exists = transition(transport, from, to).is_some();
            assert_eq!(exists, starts.contains(&(from, to)), "{from} to {to}");
        }
    }
}

/// The checks of the kernel's driver: `modify_dci_qp_is_ok`, and `mlx5_ib_modify_dct` of a target.
#[test]
fn dc_needs_and_allows_the_attributes_of_its_driver() {
    use QpState as S;
    let (port, timer) = (IBV_QP_PKEY_INDEX | IBV_QP_PORT, IBV_QP_MIN_RNR_TIMER);
    let retry = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    let rts = IBV_QP_TIMEOUT | retry | IBV_QP_SQ_PSN;
    let to_rtr = IBV_QP_PATH_MTU;
    let initiator = [
        (S::RESET, S::INIT, port, 0),
        (S::INIT, S::INIT, 0, port),
        (S::INIT, S::RTR, to_rtr, IBV_QP_PKEY_INDEX),
        (S::RTR, S::RTS, rts, timer),
        (S::RTS, S::RTS, 0, timer),
        (S::RTS, S::RESET, 0, 0),
        (S::RTS, S::ERR, 0, 0),
    ];
    let target = [
        (S::RESET, S::INIT, port | IBV_QP_ACCESS_FLAGS, 0),
        (S::INIT, S::RTR, timer | IBV_QP_AV | to_rtr, 0),
    ];
    let check = |transport, from, to, required, optional| {
        let expected = Transition { required, optional };
        assert_eq!(transition(transport, from, to), Some(expected));
    };
    for (from, to, required, optional) in initiator {
        check(Transport::DcInitiator, from, to, required, optional);
    }
    for (from, to, required, optional) in target {
        check(Transport::DcTarget, from, to, required, optional);
    }
}

#[test]
fn xrc_halves_share_the_attributes_of_a_reliable_connection() {
    let of = |transport, from, to| {
        transition(transport, from, to)
            .expect("a transition")
            .required
    };
    for (from, to) in [
        (QpState::RESET, QpState::INIT),
        (QpState::INIT, QpState::RTR),
        (QpState::RTR, QpState::RTS),
    ] {
        let (send, recv) = (
            of(Transport::XrcSend, from, to),
            of(Transport::XrcRecv, from, to),
        );
        assert_eq!(send | recv, of(Transport::Rc, from, to), "{from} to {to}");
    }
    assert_eq!(
        of(Transport::XrcRecv, QpState::RTR, QpState::RTS),
        IBV_QP_TIMEOUT | IBV_QP_SQ_PSN
    );
    assert_eq!(of(Transport::XrcSend, QpState::INIT, QpState::RTR), CONNECT);
}

#[test]
fn a_violation_names_missing_and_forbidden_attributes() {
    let rtr = required_mask(Transport::Rc, QpState::INIT, QpState::RTR) & !IBV_QP_MIN_RNR_TIMER;
    assert_eq!(
        violation(
            Transport::Rc,
            QpState::INIT,
            QpState::RTR,
            rtr | IBV_QP_QKEY
        )
        .expect("a violation"),
        "the transition from INIT to RTR requires min_rnr_timer and does not allow qkey"
    );
    assert_eq!(
        violation(Transport::Rc, QpState::RTR, QpState::RTS, 0).expect("a violation"),
        "the transition from RTR to RTS requires timeout, retry_cnt, rnr_retry, max_rd_atomic, sq_psn"
    );
    assert_eq!(
        violation(Transport::Rc, QpState::RESET, QpState::RTS, 0).expect("a violation"),
        "there is no transition from RESET to RTS; available from RESET: RESET, INIT"
    );
    assert_eq!(
        violation(Transport::Ud, QpState::RTS, QpState::RTS, IBV_QP_TIMEOUT).expect("a violation"),
        "the transition from RTS to RTS does not allow timeout"
    );
}

#[test]
fn every_attribute_has_a_name() {
    let named = NAMES.iter().fold(0, |all, (flag, _)| all | flag);
    for transport in ALL {
        for from in STATES {
            for to in STATES {
                if let Some(Transition { required, optional }) = transition(transport, from, to) {
                    assert_eq!((required | optional) & !named, 0, "{transport} {from} {to}");
                    assert_eq!(required & optional, 0, "{transport} {from} {to}");
                }
            }
        }
    }
}
