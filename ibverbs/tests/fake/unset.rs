//! Functions that a provider leaves NULL although it accepts what needs them, as bnxt_re does for
//! three operations. The data path does not test for NULL, so creation does.

use crate::fixture::{Fake, Pair, open, parents, small};
use fake_provider::Profile;
use ibverbs::cq_ex::{CqFields, FieldSet};
use ibverbs::qp::OptionalOps;
use ibverbs::{CqOptions, DuplexTransport, ErrorKind, PostError, Rc, Ud, wr};

const fn without(unset: &'static [&'static str]) -> Profile {
    Profile {
        extra_fields: true,
        more_verbs: true,
        unset,
        ..Profile::RXE
    }
}

/// Returns `true` if a queue pair posts with the extended verbs although functions are missing.
fn is_extended<T: DuplexTransport>(unset: &'static [&'static str]) -> bool {
    let fake = Fake::new(without(unset));
    let (_, pd, cq) = parents(&fake);
    let qp = pd.create_qp::<T>(&cq, &cq, small()).expect("queue pair");
    qp.is_extended()
}

#[test]
fn a_queue_pair_without_a_function_uses_the_classic_verbs() {
    const OF_RC: [&[&str]; 10] = [
        &["wr_send"],
        &["wr_send_imm"],
        &["wr_rdma_write"],
        &["wr_rdma_write_imm"],
        &["wr_rdma_read"],
        &["wr_atomic_cmp_swp"],
        &["wr_atomic_fetch_add"],
        &["wr_set_sge"],
        &["wr_set_sge_list"],
        &["wr_set_inline_data"],
    ];
    for unset in OF_RC {
        assert!(!is_extended::<Rc>(unset), "{unset:?}");
    }
    assert!(!is_extended::<Ud>(&["wr_set_ud_addr"]));
    assert!(is_extended::<Rc>(&["wr_set_ud_addr", "wr_set_xrc_srqn"]));
    assert!(is_extended::<Ud>(&["wr_rdma_read", "wr_set_xrc_srqn"]));
    assert!(is_extended::<Rc>(&["wr_flush", "wr_atomic_write"]));
}

#[test]
fn an_xrc_queue_pair_without_its_setter_uses_the_classic_verbs() {
    for (unset, expected) in [(&["wr_set_xrc_srqn"], false), (&["wr_set_ud_addr"], true)] {
        let fake = Fake::new(without(unset));
        let (_, pd, cq) = parents(&fake);
        let qp = pd.create_xrc_send_qp(&cq, small()).expect("queue pair");
        assert_eq!(qp.is_extended(), expected, "{unset:?}");
    }
}

#[test]
fn a_missing_operation_of_windows_is_refused() {
    const OF_WINDOWS: [&[&str]; 3] = [&["wr_send_inv"], &["wr_bind_mw"], &["wr_local_inv"]];
    for unset in OF_WINDOWS {
        let mut pair = Pair::new(without(unset));
        assert!(pair.a.is_extended(), "{unset:?}");
        let send = wr::send_with_inv(wr::Empty, 1);
        let rejected = pair.a.post_send(send).expect_err("no function");
        assert_eq!(rejected.error(), PostError::Unsupported, "{unset:?}");
    }
}

#[test]
fn a_missing_optional_operation_is_an_error() {
    for (unset, ops) in [
        (&["wr_flush"], OptionalOps::FLUSH),
        (&["wr_atomic_write"], OptionalOps::ATOMIC_WRITE),
    ] {
        let fake = Fake::new(without(unset));
        let (_, pd, cq) = parents(&fake);
        let created = pd.create_qp::<Rc>(&cq, &cq, small().optional_ops(ops));
        let error = created.expect_err("no function");
        assert!(error.is_unsupported(), "{error}");
    }
}

#[test]
fn a_completion_queue_without_a_reader_is_an_error() {
    const READERS: [&[&str]; 11] = [
        &["read_byte_len"],
        &["read_imm_data"],
        &["read_qp_num"],
        &["read_src_qp"],
        &["read_slid"],
        &["read_sl"],
        &["read_dlid_path_bits"],
        &["read_completion_ts"],
        &["read_completion_wallclock_ns"],
        &["read_cvlan"],
        &["read_flow_tag"],
    ];
    fn create(unset: &'static [&'static str], fields: impl FieldSet) -> Result<(), ErrorKind> {
        let fake = Fake::new(without(unset));
        let context = open(&fake);
        let created = context.create_cq_ex(CqOptions::new(), fields);
        created.map(drop).map_err(|error| error.kind())
    }
    for unset in READERS {
        let fields = CqFields::new().timestamp().wallclock().cvlan().flow_tag();
        assert_eq!(
            create(unset, fields),
            Err(ErrorKind::Unsupported),
            "{unset:?}"
        );
    }
    let others = &[
        "read_completion_wallclock_ns",
        "read_cvlan",
        "read_flow_tag",
    ];
    assert_eq!(create(others, CqFields::new().timestamp()), Ok(()));
    assert_eq!(
        create(&["read_completion_ts"], CqFields::new().cvlan()),
        Ok(())
    );
}
