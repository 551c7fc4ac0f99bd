//! Faults of the network: what the adapter hides, and the errors that it reports.

mod pair;

use ibverbs::{WcStatus, wr};
use nic_model::{Fault, FaultRule, Nak, inject};
use pair::{Pair, REMOTE, connect, connect_with};

/// Sends three messages after a fault was ordered, and checks that all arrive in order.
fn check_hidden(rule: FaultRule) {
    let mut pair = connect();
    inject(rule);
    for _ in 0..3 {
        let room = pair.pd.buf(8).expect("buffer");
        pair.b.post_recv(wr::recv(room)).expect("receive");
    }
    for number in 0..3_u8 {
        let data = [number; 8];
        pair.a.post_send(wr::send(wr::Inline(&data))).expect("send");
    }
    let mut arrived = Vec::new();
    for retired in pair.retire(6) {
        retired.check().expect("success");
        if retired.direction() == ibverbs::Direction::Recv {
            arrived.push(retired.into_buf().expect("a buffer")[0]);
        }
    }
    assert_eq!(arrived, [0, 1, 2], "{rule:?}");
}

#[test]
fn lost_repeated_and_late_packets_are_hidden() {
    for after in 0..3 {
        for fault in [
            Fault::Drop,
            Fault::Duplicate,
            Fault::Delay(50_000),
            Fault::Reorder,
        ] {
            check_hidden(FaultRule::new(fault).after(after));
        }
        for fault in [Fault::Drop, Fault::Duplicate, Fault::Delay(50_000)] {
            check_hidden(FaultRule::new(fault).after(after).on_responses());
        }
    }
}

#[test]
fn a_repeated_atomic_operation_is_executed_once() {
    let mut pair = connect();
    let region = pair.pd.shared(8, REMOTE).expect("region");
    inject(FaultRule::new(Fault::Drop).on_responses());
    let room = pair.pd.buf(8).expect("buffer");
    pair.a
        .post_send(wr::fetch_add(room, region.remote(), 1))
        .expect("add");
    let result = pair.retire(1).remove(0);
    result.check().expect("success");
    assert_eq!(result.into_buf().expect("a buffer")[..], [0; 8]);
    let now = region.load(0, std::sync::atomic::Ordering::Acquire);
    assert_eq!(now.expect("aligned"), 1);
}

#[test]
fn corruption_reaches_the_receiver() {
    let mut pair = connect();
    inject(FaultRule::new(Fault::Corrupt));
    assert_eq!(pair.transfer(&[1, 2, 3]), [!1, 2, 3]);
    assert_eq!(pair.transfer(&[1, 2, 3]), [1, 2, 3]);
}

/// Returns the status of a send.
fn send_status(pair: &mut Pair) -> WcStatus {
    pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
    pair.a.post_send(wr::send(wr::Empty)).expect("send");
    loop {
        let is_send = |one: &ibverbs::Retired| one.direction() == ibverbs::Direction::Send;
        if let Some(sent) = pair.retire(1).into_iter().find(is_send) {
            return sent.status();
        }
    }
}

#[test]
fn negative_acknowledgements_become_their_status() {
    for (nak, status) in [
        (Nak::InvalidRequest, WcStatus::REM_INV_REQ_ERR),
        (Nak::RemoteAccess, WcStatus::REM_ACCESS_ERR),
        (Nak::RemoteOperation, WcStatus::REM_OP_ERR),
    ] {
        let mut pair = connect();
        inject(FaultRule::new(Fault::Nak(nak)));
        assert_eq!(send_status(&mut pair), status);
    }
}

#[test]
fn retries_end_after_their_number() {
    // 4.096 µs, so that few steps pass.
    let mut pair = connect_with(|path| path.timeout(1).retry_cnt(3));
    inject(FaultRule::new(Fault::Drop).times(3));
    assert_eq!(send_status(&mut pair), WcStatus::SUCCESS);
    drop(pair);
    let mut pair = connect_with(|path| path.timeout(1).retry_cnt(3));
    inject(FaultRule::new(Fault::Drop).times(4));
    assert_eq!(send_status(&mut pair), WcStatus::RETRY_EXC_ERR);
}

#[test]
fn rnr_retries_end_after_their_number() {
    let mut pair = connect_with(|path| path.rnr_retry(1));
    inject(FaultRule::new(Fault::Nak(Nak::ReceiverNotReady)));
    assert_eq!(send_status(&mut pair), WcStatus::SUCCESS);
    drop(pair);
    let mut pair = connect_with(|path| path.rnr_retry(1));
    inject(FaultRule::new(Fault::Nak(Nak::ReceiverNotReady)).times(2));
    assert_eq!(send_status(&mut pair), WcStatus::RNR_RETRY_EXC_ERR);
}
