//! Exposed queues, with a libmlx5 that says that nothing was posted.

#![allow(unsafe_code, reason = "exposes queues to a closure that does nothing")]

use std::ffi::c_int;

use ibverbs::{CompletionQueue, Context, ErrorKind, QueuePair};
use rdma_sys::{MLX5DV_OBJ_QP, mlx5dv_obj};

use super::*;

/// Returns the address of the doorbell records, the only one that the library reads.
#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_init_obj(object: *mut mlx5dv_obj, kind: u64) -> c_int {
    static RECORDS: [u32; 2] = [0; 2];
    if kind == u64::from(MLX5DV_OBJ_QP) {
        // SAFETY: the caller passes a writable output of this kind.
        unsafe { (*(*object).qp.out).dbrec = RECORDS.as_ptr().cast_mut() };
    }
    0
}

/// Exposes the queues of a queue pair. Returns `true` if its completion queue was exposed too.
fn expose(qp: &mut QueuePair<Rc>, cq: &mut CompletionQueue) -> bool {
    // SAFETY: the closure writes nothing.
    let exposed = unsafe { qp.expose_queues(cq, 0, |queues| queues.completion_queue().is_ok()) };
    exposed.expect("exposed")
}

fn queue(context: &Context) -> CompletionQueue {
    let cq = context.create_cq(CqOptions::new().depth(15));
    cq.expect("completion queue")
}

#[test]
fn a_completion_queue_is_exposed_with_its_only_queue_pair() {
    let _guard = exclusive();
    let fake = Fake::extended();
    let context = open(&fake);
    let pd = context.alloc_pd().expect("domain");
    let srq = pd.create_srq(SrqOptions::new()).expect("srq");
    let other = queue(&context);
    for is_shared in [false, true] {
        let mut sends = queue(&context);
        let recvs = if is_shared { &sends } else { &other };
        let mut qp = pd.create_qp::<Rc>(&sends, recvs, small()).expect("qp");
        assert!(expose(&mut qp, &mut sends));
        let again = pd.create_qp::<Rc>(&sends, &other, small());
        let error = again.expect_err("it was exposed");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let mut sends = queue(&context);
        let recvs = if is_shared { &sends } else { &other };
        let mut qp = pd
            .create_qp_with_srq::<Rc>(&sends, recvs, &srq, small())
            .expect("qp");
        assert_eq!(expose(&mut qp, &mut sends), !is_shared);
    }
    let mut sends = queue(&context);
    let mut qp = pd.create_qp::<Rc>(&other, &sends, small()).expect("qp");
    // SAFETY: the closure does nothing.
    let exposed = unsafe { qp.expose_queues(&mut sends, 0, |_| ()) };
    let error = exposed.expect_err("only its receives complete there");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    drop((qp, sends));
    let mut shared = queue(&context);
    let create = || pd.create_qp::<Rc>(&shared, &shared, small()).expect("qp");
    let (mut a, b) = (create(), create());
    assert!(!expose(&mut a, &mut shared));
    drop((a, b, shared, other, srq, pd, context));
    fake.assert_clean();
}

#[test]
fn a_lent_queue_pair_is_leaked_with_requests_in_flight() {
    let _guard = exclusive();
    for (is_shared, sends, receives, is_leaked) in [
        (false, false, true, false),
        (false, true, false, true),
        (true, false, false, false),
        (true, false, true, true),
        (true, true, false, true),
    ] {
        let fake = Fake::extended();
        let context = open(&fake);
        let pd = context.alloc_pd().expect("domain");
        let other = queue(&context);
        let mut cq = queue(&context);
        let recvs = if is_shared { &cq } else { &other };
        let mut a = pd.create_qp::<Rc>(&cq, recvs, small()).expect("a");
        let mut b = pd.create_qp::<Rc>(&other, &other, small()).expect("b");
        fixture::connect(&mut a, &mut b);
        assert!(expose(&mut a, &mut cq));
        fake.stall();
        if sends {
            a.post_send(wr::send(wr::Empty)).expect("send");
        }
        if receives {
            a.post_recv(wr::recv(wr::Empty)).expect("receive");
        }
        let leaked = leaked_objects();
        let destroyed = a.destroy();
        let error = destroyed.err().map(|error| error.kind());
        assert_eq!(error, is_leaked.then_some(ErrorKind::WrongState));
        assert_eq!(leaked_objects(), leaked + u64::from(is_leaked));
        drop((b, cq, other, pd, context));
        assert_eq!(fake.live().qps, usize::from(is_leaked));
    }
}
