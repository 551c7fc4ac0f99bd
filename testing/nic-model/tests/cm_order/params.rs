//! Parameters that both sides exchange, and what their queue pairs get.

use ibverbs::{AccessFlags, SrqOptions};

use super::*;

#[test]
fn the_queue_pair_and_the_private_data_are_sent() {
    let setup = Setup::new();
    let pd = setup.pd();
    let cq = setup.context.create_cq(CqOptions::new().depth(16));
    let cq = cq.expect("completion queue");
    let srq = pd.create_srq(SrqOptions::new().max_wr(4)).expect("queue");
    let with_srq = || {
        let created = pd.create_qp_with_srq::<Rc>(&cq, &cq, &srq, QpOptions::new());
        created.expect("qp")
    };
    for has_srq in [true, false] {
        let qp = || if has_srq { with_srq() } else { setup.qp() };
        calls::reset();
        let ready = setup.route().with_qp(qp()).expect("INIT");
        let params = ConnectParams::new();
        let connecting = ready.start(&params.private_data(b"request"));
        let connecting = connecting.expect("started");
        let request = setup.request();
        assert_eq!(request.private_data()[..7], *b"request");
        assert_eq!(request.private_data()[7..], [0; 49]);
        let ready = request.with_qp(qp()).expect("INIT");
        let accepting = ready.start(&params.private_data(b"reply"));
        let accepting = accepting.expect("accepted");
        let active = connecting.wait(Some(TIMEOUT)).expect("connected");
        assert_eq!(active.private_data()[..5], *b"reply");
        let passive = accepting.wait(Some(TIMEOUT)).expect("connected");
        let sent = calls::reset().params;
        let thread = thread::current().id();
        let expect = |connection: &Connection, data: &[u8]| calls::Params {
            qp_num: connection.qp().qp_num().0,
            has_srq,
            private_data: data.to_vec(),
            depths: sent[0].depths,
            thread,
        };
        let expected = [expect(&active, b"request"), expect(&passive, b"reply")];
        assert_eq!(sent, expected);
    }
}

/// Neither side may have more READs in flight than the other one serves. The peer's answer can ask
/// for more than this side has offered.
#[test]
fn the_depths_are_limited_by_both_sides() {
    const READ: AccessFlags = AccessFlags::REMOTE_READ;
    const WRITE: AccessFlags = AccessFlags::REMOTE_WRITE;
    let setup = Setup::new();
    let number = |connection: &Connection| connection.qp().qp_num().0;
    let params = |responder_resources, initiator_depth| {
        let params = ConnectParams::new()
            .min_rnr_timer(7)
            .responder_resources(responder_resources);
        params.initiator_depth(initiator_depth)
    };
    let attr = setup.context.query_device().expect("query");
    let max = |max: u32| u8::try_from(max).expect("small");
    let max = (max(attr.max_qp_rd_atom), max(attr.max_qp_init_rd_atom));
    assert!(max.0 > 4 && max.1 > 4, "{max:?}");
    // Active, passive and expected values: what each side serves, and what it has in flight.
    let all = (255, 255);
    for (active, passive, sent, used) in [
        (all, all, [max, max], [max, max]),
        ((4, 3), all, [(4, 3), (3, 4)], [(4, 3), (3, 4)]),
        ((4, 3), (2, 1), [(4, 3), (2, 1)], [(1, 2), (2, 1)]),
        (all, (2, 1), [max, (2, 1)], [(1, 2), (2, 1)]),
    ] {
        calls::reset();
        let route = setup.route().access(READ);
        let ready = route.with_qp(setup.qp()).expect("INIT");
        let connecting = ready.start(&params(active.0, active.1)).expect("started");
        let request = setup.request().access(WRITE);
        let ready = request.with_qp(setup.qp()).expect("INIT");
        let accepting = ready.start(&params(passive.0, passive.1));
        let accepting = accepting.expect("accepted");
        let ends = [
            connecting.wait(Some(TIMEOUT)).expect("connected"),
            accepting.wait(Some(TIMEOUT)).expect("connected"),
        ];
        let seen = calls::reset();
        let were_sent: Vec<_> = seen.params.iter().map(|params| params.depths).collect();
        assert_eq!(were_sent, sent);
        let attributes = ends.each_ref().map(|end| seen.attributes[&number(end)]);
        assert_eq!(attributes.map(|attributes| attributes.depths), used);
        let others = attributes.map(|attributes| (attributes.access, attributes.min_rnr_timer));
        assert_eq!(others, [(READ.bits(), 7), (WRITE.bits(), 7)]);
    }

    calls::reset();
    let ready = setup.route().with_qp(setup.qp()).expect("INIT");
    let connecting = ready.start(&params(4, 3)).expect("started");
    let ready = setup.request().with_qp(setup.qp()).expect("INIT");
    calls::change_params(|param| (param.responder_resources, param.initiator_depth) = (9, 8));
    let accepting = ready.start(&ConnectParams::new()).expect("accepted");
    let active = connecting.wait(Some(TIMEOUT)).expect("connected");
    assert_eq!(calls::reset().attributes[&number(&active)].depths, (4, 3));
    drop(accepting);
}
