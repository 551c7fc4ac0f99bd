//! Dynamically connected transport: the states of initiators and targets.

use crate::fixture::{Fake, parents, path, small};
use fake_provider::Profile;
use ibverbs::dc::DcKey;
use ibverbs::{ErrorKind, QpState, SrqOptions};

#[test]
fn an_initiator_starts_to_rts_and_a_target_to_rtr() {
    let fake = Fake::new(Profile {
        more_verbs: true,
        ..Profile::RXE
    });
    let (_, pd, cq) = parents(&fake);
    let mut initiator = pd.create_dc_qp(&cq, small()).expect("initiator");
    initiator.start(&path()).expect("start");
    assert_eq!(initiator.state().expect("state"), QpState::RTS);
    let srq = pd.create_srq(SrqOptions::new()).expect("queue");
    let mut target = pd
        .create_dc_target(&cq, &srq, DcKey(0x1234))
        .expect("target");
    target.start(&path()).expect("start");
    assert_eq!(target.state().expect("state"), QpState::RTR);
    let error = target.start(&path()).expect_err("not in RESET");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
