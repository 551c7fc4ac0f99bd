//! States of a queue pair: errors of transitions, and reading back attributes.

use std::time::Duration;

use ibverbs::{
    AccessFlags, AhAttr, Error, ErrorKind, GidQuery, Mtu, Psn, QpState, Rc, RcPath, Uc, WcStatus,
    qp::{DRAIN_TAG, Ece, QpChange},
    wr,
};

use crate::lab::{
    self, devices_with, is_iwarp, is_mlx5, pair, pairs, roce, roce_paths, roce_with, verb,
};

fn expect_invalid(result: Result<(), Error>, message: &str) {
    let error = result.expect_err(message);
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains(message), "{error}");
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn transition_error_names_wrong_attributes() {
    for context in roce() {
        let pd = context.alloc_pd().expect("protection domain");
        let cq = lab::cq(&context);
        let mut qp = lab::qp::<Rc>(&pd, &cq);
        expect_invalid(
            qp.modify(&QpChange::to(QpState::RTS)),
            "there is no transition from RESET to RTS; available from RESET:",
        );
        expect_invalid(
            qp.modify(&QpChange::to(QpState::INIT)),
            "requires access, pkey_index, port_num",
        );
        let entry = context
            .select_gid(1, &GidQuery::default())
            .expect("GID")
            .entry;
        let path = RcPath::new(1, entry.index, Mtu::B1024);
        expect_invalid(
            qp.connect(&path, &qp.endpoint(&path).expect("endpoint")),
            "there is no transition from RESET to RTR",
        );
        let init = QpChange::to(QpState::INIT)
            .access(AccessFlags::REMOTE_READ)
            .pkey_index(0)
            .port_num(1);
        expect_invalid(qp.modify(&init.timeout(9)), "does not allow timeout");
        qp.modify(&init).expect("INIT state");
        let rtr = QpChange::to(QpState::RTR)
            .address(AhAttr::for_gid(1, entry.index, entry.gid))
            .path_mtu(Mtu::B1024)
            .dest_qpn(qp.qp_num())
            .rq_psn(Psn(77))
            .max_dest_rd_atomic(3)
            .min_rnr_timer(12);
        let mut incomplete = rtr;
        incomplete.path_mtu = None;
        incomplete.min_rnr_timer = None;
        expect_invalid(qp.modify(&incomplete), "requires path_mtu, min_rnr_timer");
        qp.modify(&rtr).expect("RTR state");
        let rts = QpChange::to(QpState::RTS)
            .timeout(9)
            .retry_cnt(5)
            .rnr_retry(4)
            .max_rd_atomic(2)
            .sq_psn(Psn(77));
        qp.modify(&rts).expect("RTS state");
        let attr = qp.query().expect("query");
        assert_eq!(
            (attr.state, attr.access, attr.port_num),
            (QpState::RTS, AccessFlags::REMOTE_READ, 1)
        );
        assert_eq!((attr.timeout, attr.retry_cnt, attr.rnr_retry), (9, 5, 4));
        assert_eq!((attr.dest_qpn, attr.path_mtu), (qp.qp_num(), Mtu::B1024));
        assert_eq!(
            (attr.max_rd_atomic.min(2), attr.min_rnr_timer),
            (2, 12),
            "as set, or rounded up"
        );
        let route = attr.address.grh.expect("a global route");
        assert_eq!((route.dgid, route.sgid_index), (entry.gid, entry.index));
        expect_invalid(
            qp.modify(&QpChange::new().rate_limit(1)),
            "does not allow rate_limit",
        );
        qp.modify(&QpChange::new().min_rnr_timer(20))
            .expect("in RTS");
        assert_eq!(qp.query().expect("query").min_rnr_timer, 20);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn invalid_transition_is_rejected_on_every_device() {
    for context in devices_with(&[verb::RC]) {
        let pd = context.alloc_pd().expect("protection domain");
        let cq = lab::cq(&context);
        let mut qp = lab::qp::<Rc>(&pd, &cq);
        let error = qp
            .modify(&QpChange::to(QpState::RTS))
            .expect_err("not from RESET");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let listed = error.to_string().contains("there is no transition");
        assert_eq!(listed, !is_iwarp(&context), "{error}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn only_idle_queue_pair_can_be_reset_and_reconnected() {
    for (context, options) in roce_paths() {
        let mut pair = pair(&context, options);
        pair.b
            .post_recv(wr::recv(pair.pd.buf(8).expect("buffer")))
            .expect("receive");
        assert!(!pair.b.is_idle() && pair.a.is_idle());
        expect_invalid(
            pair.b.modify(&QpChange::to(QpState::RESET)),
            "requests in flight",
        );
        pair.a
            .post_send(wr::send(wr::Inline(b"first")))
            .expect("send");
        pair.retire(2)
            .iter()
            .for_each(|one| one.check().expect("success"));
        let entry = context
            .select_gid(1, &GidQuery::default())
            .expect("GID")
            .entry;
        let path = RcPath::new(1, entry.index, Mtu::B1024).psn(Psn(500));
        for qp in [&mut pair.a, &mut pair.b] {
            qp.modify(&QpChange::to(QpState::RESET)).expect("idle");
            qp.init(&path).expect("INIT state");
        }
        let (a, b) = (
            pair.a.endpoint(&path).expect("a"),
            pair.b.endpoint(&path).expect("b"),
        );
        assert_eq!((a.psn, a.gid), (Psn(500), entry.gid));
        pair.a.connect(&path, &b).expect("a");
        pair.b.connect(&path, &a).expect("b");
        pair.b
            .post_recv(wr::recv(pair.pd.buf(8).expect("buffer")))
            .expect("receive");
        pair.a
            .post_send(wr::send(wr::Inline(b"second")))
            .expect("send");
        pair.retire(2)
            .iter()
            .for_each(|one| one.check().expect("success"));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn drain_returns_all_buffers_and_foreign_completions() {
    for mut pair in pairs() {
        let pool = pair.pd.pool(8, 64).expect("pool");
        for _ in 0..4 {
            pair.b
                .post_recv(wr::recv(pool.take().expect("a free buffer")))
                .expect("receive");
            pair.a
                .post_send(wr::send(pool.take().expect("a free buffer")).signaled(false))
                .expect("send");
        }
        let (mut statuses, mut others) = (Vec::new(), 0);
        let lab::Pair { a, b, cq, .. } = &mut pair;
        let drained = a.drain(&mut [cq], Duration::from_secs(20), |each| match each {
            Ok(retired) => statuses.push((retired.tag(), retired.status())),
            Err(completion) => {
                others += 1;
                b.retire(completion).expect("posted on b");
            }
        });
        drained.expect("drained");
        assert!(a.is_idle());
        assert_eq!(
            statuses.last(),
            Some(&(DRAIN_TAG, WcStatus::WR_FLUSH_ERR)),
            "the marker request must be last"
        );
        b.drain(&mut [cq], Duration::from_secs(20), |_| others += 1)
            .expect("drained");
        assert!(
            (4..=5).contains(&others),
            "four receives and possibly the marker request: {others}"
        );
        assert_eq!(pool.available(), 8);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn enhanced_connections_work_or_are_unsupported() {
    for context in devices_with(&[verb::RC]) {
        let pd = context.alloc_pd().expect("protection domain");
        let cq = lab::cq(&context);
        let mut qp = lab::qp::<Rc>(&pd, &cq);
        if is_mlx5(&context) {
            let ece = qp.query_ece().expect("supported");
            qp.set_ece(ece).expect("supported");
            continue;
        }
        assert!(qp.query_ece().expect_err("no ECE").is_unsupported());
        assert!(
            qp.set_ece(Ece {
                vendor_id: 1,
                options: 1
            })
            .expect_err("no ECE")
            .is_unsupported()
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn uc_transitions_require_fewer_attributes() {
    for context in roce_with(&[verb::UC]) {
        let pd = context.alloc_pd().expect("protection domain");
        let cq = lab::cq(&context);
        let mut qp = lab::qp::<Uc>(&pd, &cq);
        let entry = context
            .select_gid(1, &GidQuery::default())
            .expect("GID")
            .entry;
        qp.init(&RcPath::new(1, entry.index, Mtu::B1024))
            .expect("INIT state");
        let rtr = QpChange::to(QpState::RTR).min_rnr_timer(12);
        expect_invalid(
            qp.modify(&rtr),
            "requires address, path_mtu, rq_psn, dest_qpn and does not allow min_rnr_timer",
        );
    }
}
