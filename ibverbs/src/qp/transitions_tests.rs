//! The table against the one of the specification, and its words.

use super::*;

const ALL: [QpType; 6] = [
    QpType::RC,
    QpType::UC,
    QpType::UD,
    QpType::RAW_PACKET,
    QpType::XRC_SEND,
    QpType::XRC_RECV,
];

#[test]
fn steps_exist_where_the_specification_draws_them() {
    for kind in ALL {
        let ways: Vec<(QpState, QpState)> = STATES
            .iter()
            .flat_map(|&from| STATES.iter().map(move |&to| (from, to)))
            .filter(|&(from, to)| step(kind, from, to).is_some())
            .collect();
        for from in STATES {
            assert!(ways.contains(&(from, QpState::RESET)), "{kind} {from}");
            assert_eq!(
                ways.contains(&(from, QpState::ERR)),
                from != QpState::RESET,
                "{kind} {from}"
            );
        }
        // Forwards one step at a time, and back to RESET only.
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
                !ways.contains(&(STATES[from], STATES[to])),
                "{kind} {} {}",
                STATES[from],
                STATES[to]
            );
        }
        for (from, to) in [(0, 1), (1, 1), (1, 2), (2, 3), (3, 3)] {
            assert!(
                ways.contains(&(STATES[from], STATES[to])),
                "{kind} {} {}",
                STATES[from],
                STATES[to]
            );
        }
        let recovers = [QpType::UC, QpType::UD].contains(&kind);
        assert_eq!(
            ways.contains(&(QpState::SQE, QpState::RTS)),
            recovers,
            "{kind}"
        );
        assert_eq!(
            ways.contains(&(QpState::RTS, QpState::SQD)),
            kind != QpType::RAW_PACKET,
            "{kind}"
        );
    }
}

#[test]
fn what_connect_gives_is_what_the_steps_take() {
    let uc = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    let rc = uc | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    let patience = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    for (kind, rtr, rts) in [
        (QpType::RC, rc, patience | IBV_QP_SQ_PSN),
        (QpType::UC, uc, IBV_QP_SQ_PSN),
    ] {
        assert_eq!(
            needed(kind, QpState::INIT, QpState::RTR),
            rtr | IBV_QP_STATE
        );
        assert_eq!(needed(kind, QpState::RTR, QpState::RTS), rts | IBV_QP_STATE);
        let init = START | IBV_QP_ACCESS_FLAGS;
        assert_eq!(
            fault(kind, QpState::RESET, QpState::INIT, init | IBV_QP_STATE),
            None
        );
    }
    let datagram = START | IBV_QP_QKEY;
    assert_eq!(
        fault(QpType::UD, QpState::RESET, QpState::INIT, datagram),
        None
    );
    assert_eq!(fault(QpType::UD, QpState::INIT, QpState::RTR, 0), None);
    assert_eq!(
        fault(QpType::UD, QpState::RTR, QpState::RTS, IBV_QP_SQ_PSN),
        None
    );
    assert_eq!(
        fault(
            QpType::RAW_PACKET,
            QpState::RESET,
            QpState::INIT,
            IBV_QP_PORT
        ),
        None
    );
}

#[test]
fn the_halves_of_xrc_share_what_a_reliable_connection_takes() {
    let of = |kind, from, to| step(kind, from, to).expect("a step").required;
    for (from, to) in [
        (QpState::RESET, QpState::INIT),
        (QpState::INIT, QpState::RTR),
        (QpState::RTR, QpState::RTS),
    ] {
        let (send, recv) = (
            of(QpType::XRC_SEND, from, to),
            of(QpType::XRC_RECV, from, to),
        );
        assert_eq!(send | recv, of(QpType::RC, from, to), "{from} to {to}");
    }
    assert_eq!(
        of(QpType::XRC_RECV, QpState::RTR, QpState::RTS),
        IBV_QP_TIMEOUT | IBV_QP_SQ_PSN
    );
    assert_eq!(of(QpType::XRC_SEND, QpState::INIT, QpState::RTR), CONNECT);
}

#[test]
fn a_fault_names_what_is_missing_forbidden_or_possible() {
    let rtr = needed(QpType::RC, QpState::INIT, QpState::RTR) & !IBV_QP_MIN_RNR_TIMER;
    assert_eq!(
        fault(QpType::RC, QpState::INIT, QpState::RTR, rtr | IBV_QP_QKEY).expect("a fault"),
        "the step from INIT to RTR lacks min_rnr_timer and does not take qkey"
    );
    assert_eq!(
        fault(QpType::RC, QpState::RTR, QpState::RTS, 0).expect("a fault"),
        "the step from RTR to RTS lacks timeout, retry_cnt, rnr_retry, max_rd_atomic, sq_psn"
    );
    assert_eq!(
        fault(QpType::RC, QpState::RESET, QpState::RTS, 0).expect("a fault"),
        "there is no step from RESET to RTS; from RESET it goes to RESET, INIT"
    );
    assert_eq!(
        fault(QpType::UD, QpState::RTS, QpState::RTS, IBV_QP_TIMEOUT).expect("a fault"),
        "the step from RTS to RTS does not take timeout"
    );
}

#[test]
fn every_attribute_has_a_name() {
    let named = NAMES.iter().fold(0, |all, (flag, _)| all | flag);
    for kind in ALL {
        for from in STATES {
            for to in STATES {
                if let Some(Step { required, optional }) = step(kind, from, to) {
                    assert_eq!((required | optional) & !named, 0, "{kind} {from} {to}");
                    assert_eq!(required & optional, 0, "{kind} {from} {to}");
                }
            }
        }
    }
}
