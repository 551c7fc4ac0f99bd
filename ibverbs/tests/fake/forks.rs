//! A forked child that uses the objects of its parent.
#![cfg(not(miri))]
#![allow(unsafe_code)]

use std::ffi::c_int;

use crate::fixture::{Fake, Pair, open, small};
use fake_provider::Profile;
use ibverbs::cq_ex::CqFields;
use ibverbs::{CqOptions, ErrorKind, Rc, SrqOptions, wr};

/// Returns the wait status of a child that runs a function, and exits with 0 if it returns `true`.
fn status_of_child(run: impl FnOnce() -> bool) -> c_int {
    // SAFETY: the child only uses the objects of the test, and ends without a destructor. No other
    // thread holds a lock of the test's device.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(20);
            libc::_exit(c_int::from(!run()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        status
    }
}

fn classic() -> Profile {
    Profile {
        extended_qp: false,
        ..Profile::RXE
    }
}

#[test]
fn a_child_cannot_post_or_poll() {
    let mut pair = Pair::new(classic());
    pair.post_recvs(1);
    let mut srq = pair.pd.create_srq(SrqOptions::new()).expect("queue");
    let (buf, pool) = (pair.buf(b"parent"), pair.pool.clone());
    let recv = || wr::recv(pool.take().expect("a free buffer"));
    let is_refused = |error: ibverbs::Error| error.kind() == ErrorKind::PermissionDenied;
    let status = status_of_child(|| {
        let send = pair.a.post_send(wr::send(wr::Inline(b"child")));
        let (own, shared) = (pair.b.post_recv(recv()), srq.post_recv(recv()));
        send.is_err_and(|rejected| is_refused(rejected.into()))
            && own.is_err_and(|rejected| is_refused(rejected.into()))
            && shared.is_err_and(|rejected| is_refused(rejected.into()))
            && pair.cq.poll().is_err()
            && pair.cq.arm(false).is_err_and(is_refused)
    });
    assert_eq!(status, 0);
    // The parent is not disturbed.
    pair.a.post_send(wr::send(buf)).expect("send");
    let (sends, recvs) = pair.retire();
    assert_eq!((sends.len(), recvs.len()), (1, 1));
}

#[test]
fn a_post_with_extended_verbs_ends_the_child() {
    let mut pair = Pair::new(Profile::RXE);
    pair.post_recvs(1);
    let status = status_of_child(|| pair.a.post_send(wr::send(wr::Inline(b"child"))).is_err());
    assert!(libc::WIFSIGNALED(status));
    assert_eq!(libc::WTERMSIG(status), libc::SIGABRT);
    pair.a.post_send(wr::send(wr::Inline(b"x"))).expect("send");
    let (sends, recvs) = pair.retire();
    assert_eq!((sends.len(), recvs.len()), (1, 1));
}

#[test]
fn a_child_cannot_poll_an_extended_queue() {
    let fake = Fake::new(Profile {
        extra_fields: true,
        ..Profile::RXE
    });
    let context = open(&fake);
    let options = CqOptions::new().depth(15);
    let cq = context.create_cq_ex(options, CqFields::new().timestamp());
    let mut cq = cq.expect("queue");
    assert_eq!(status_of_child(|| cq.poll().is_err()), 0);
    assert!(cq.poll().expect("poll").is_empty());
    let pd = context.alloc_pd().expect("domain");
    drop(pd.create_qp::<Rc>(&cq, &cq, small()).expect("qp"));
}

#[test]
fn a_child_does_not_write_to_destroyed_objects() {
    let fake = Fake::new(Profile {
        extra_fields: true,
        ..Profile::RXE
    });
    fake.keep_destroyed();
    let context = open(&fake);
    let pd = context.alloc_pd().expect("domain");
    let options = CqOptions::new().depth(15);
    let cq = context.create_cq_ex(options, CqFields::new().timestamp());
    let cq = cq.expect("queue");
    let create = || pd.create_qp::<Rc>(&cq, &cq, small()).expect("qp");
    create().destroy().expect("destroyed");
    drop((create(), cq, pd, context));
    assert_eq!(status_of_child(|| !fake.destroyed_were_changed()), 0);
}
