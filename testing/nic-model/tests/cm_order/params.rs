//! Parameters that both sides exchange, and what their queue pairs get.

use ibverbs::{AccessFlags, SrqOptions};
use rdma_sys::RDMA_CM_EVENT_CONNECT_REQUEST;

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
    drop((active, accepting));

    let ready = setup.route().with_qp(setup.qp()).expect("INIT");
    let connecting = ready.start(&params(4, 3)).expect("started");
    calls::reset();
    calls::change_events(|event| {
        if event.event == RDMA_CM_EVENT_CONNECT_REQUEST {
            let param = &mut event.param;
            // SAFETY: the request is for a connection.
            let param = unsafe { &mut param.conn };
            (param.responder_resources, param.initiator_depth) = (200, 200);
        }
    });
    let ready = setup.request().with_qp(setup.qp()).expect("INIT");
    let accepting = ready.start(&ConnectParams::new()).expect("accepted");
    assert_eq!(calls::reset().params[0].depths, max);
    drop((connecting, accepting));
}

/// Fails unless the error names the parameter and nothing was sent.
fn check_refused<T>(parameter: &str, refused: Result<T, impl Into<ibverbs::Error>>) {
    let Err(error) = refused.map(drop) else {
        panic!("{parameter}: no error");
    };
    let error = error.into();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains(parameter), "{error}");
    let names = calls::reset().names;
    for name in ["rdma_connect", "rdma_accept", "rdma_reject"] {
        assert!(!names.contains(&name), "{parameter}: {name} was called");
    }
}

#[test]
fn wrong_parameters_are_not_sent() {
    let setup = Setup::new();
    let qp = setup.qp();
    let retries = ConnectParams::new().retry_count(8);
    let long = [7; 200];
    let with = |len| ConnectParams::new().private_data(&long[..len]);
    let ready = || setup.route().with_qp(setup.qp()).expect("INIT");
    calls::reset();
    check_refused("57 bytes", ready().start(&with(57)));
    check_refused("retry_count 8", setup.route().request(&qp, &retries));
    check_refused("57 bytes", setup.route().request(&qp, &with(57)));

    // Each request has the longest private data.
    let requested = || {
        let connecting = ready().start(&with(56)).expect("started");
        let request = setup.request();
        assert_eq!(request.private_data(), &long[..56]);
        calls::reset();
        (connecting, request)
    };
    let (_connecting, request) = requested();
    check_refused("149 bytes", request.reject(&long[..149]));
    let (_connecting, request) = requested();
    check_refused("149 bytes", request.reject_ece(&long[..149]));
    let (_connecting, request) = requested();
    check_refused("retry_count 8", request.accept_external(&qp, &retries));
    let (_connecting, request) = requested();
    check_refused("197 bytes", request.accept_external(&qp, &with(197)));
    let (_connecting, request) = requested();
    let ready_request = request.with_qp(setup.qp()).expect("INIT");
    check_refused("149 bytes", ready_request.reject(&long[..149]));
    let (_connecting, request) = requested();
    let ready_request = request.with_qp(setup.qp()).expect("INIT");
    check_refused("197 bytes", ready_request.start(&with(197)));

    let (connecting, request) = requested();
    request.reject(&long[..148]).expect("rejected");
    let error = connecting.wait(Some(TIMEOUT)).expect_err("rejected");
    let rejection = error.rejection().expect("a rejection");
    assert_eq!(rejection.private_data, &long[..148]);

    let (connecting, request) = requested();
    let ready_request = request.with_qp(setup.qp()).expect("INIT");
    let accepting = ready_request.start(&with(196)).expect("accepted");
    let active = connecting.wait(Some(TIMEOUT)).expect("connected");
    assert_eq!(active.private_data(), &long[..196]);
    drop(accepting);

    let pending = setup.route().request(&qp, &with(56)).expect("sent");
    let ready_request = setup.request().with_qp(setup.qp()).expect("INIT");
    let accepting = ready_request.start(&with(0)).expect("accepted");
    let response = pending.wait(Some(TIMEOUT)).expect("a response");
    calls::reset();
    check_refused("149 bytes", response.reject(&long[..149]));
    drop(accepting);
}
