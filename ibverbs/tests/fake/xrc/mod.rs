//! Extended reliable connections on the fake device: delivery, memory access, and shared domains.

mod lifetimes;
mod setup;

use std::fs::File;

use crate::fixture::{self, Fake, PROFILES, open, path, small};
use ibverbs::{CqOptions, ErrorKind, PostError, QpState, SrqOptions, WcStatus, wr, xrc::XrcdOpen};
use setup::{Setup, TargetSrq, connect, with_xrc};

#[test]
fn a_message_is_received_by_the_srq_it_names() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let [first, second] = &mut setup.srqs;
        first.post_recvs(3);
        second.post_recvs(3);
        let (a, b) = (first.srq_num, second.srq_num);
        let buf = setup.buf(b"two");
        setup
            .sender
            .post_send(wr::send(wr::Inline(b"one")).for_srq(b))
            .expect("send");
        setup
            .sender
            .post_send(wr::send(buf).for_srq(a))
            .expect("send");
        setup
            .sender
            .post_send(wr::send_with_imm(wr::Inline(b"six"), 66).for_srq(b))
            .expect("send");
        assert_eq!(setup.send_statuses(), [WcStatus::SUCCESS; 3]);
        let qp_num = setup.receiver.qp_num();
        let [first, second] = &mut setup.srqs;
        assert_eq!(first.messages(), [(0, b"two".to_vec())]);
        let completions = second.cq.poll().expect("poll");
        let seen: Vec<_> = completions
            .map(|completion| (completion.queue(), completion.qp_num()))
            .collect();
        assert_eq!(
            seen,
            [(second.srq.id(), qp_num); 2],
            "the queue is the shared receive queue's, the number is the queue pair's"
        );
    }
}

#[test]
fn a_receive_has_its_immediate_data_and_tag() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        setup.srqs[1].post_recvs(1);
        let srq_num = setup.srqs[1].srq_num;
        setup
            .sender
            .post_send(wr::send_with_imm(wr::Inline(b"six"), 66).for_srq(srq_num))
            .expect("send");
        let mut received = setup.srqs[1].retire();
        let one = received.remove(0);
        assert_eq!(
            (one.imm_data(), one.tag(), fixture::buf_bytes(one)),
            (Some(66), 0, b"six".to_vec())
        );
        assert_eq!(setup.send_statuses(), [WcStatus::SUCCESS]);
    }
}

#[test]
fn requests_of_one_batch_can_name_different_srqs() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let numbers = [0, 1, 0].map(|index: usize| setup.srqs[index].srq_num);
        setup
            .srqs
            .iter_mut()
            .for_each(|target| target.post_recvs(2));
        let batch = setup.sender.batch(|batch| -> Result<(), ibverbs::Error> {
            for (text, srq_num) in [b"one", b"two", b"six"].into_iter().zip(numbers) {
                batch.send(wr::send(wr::Inline(text)).for_srq(srq_num))?;
            }
            Ok(())
        });
        batch.expect("posted");
        assert_eq!(
            setup.srqs[0].messages(),
            [(0, b"one".to_vec()), (1, b"six".to_vec())]
        );
        assert_eq!(setup.srqs[1].messages(), [(0, b"two".to_vec())]);
        assert_eq!(setup.send_statuses(), [WcStatus::SUCCESS; 3]);
    }
}

#[test]
fn a_message_waits_for_a_receive_of_the_srq_it_names() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let srq_num = setup.srqs[0].srq_num;
        setup
            .sender
            .post_send(wr::send(wr::Inline(b"early")).for_srq(srq_num))
            .expect("send");
        setup.srqs[1].post_recvs(1);
        assert!(setup.send_statuses().is_empty());
        setup.srqs[0].post_recvs(1);
        assert_eq!(setup.srqs[0].messages(), [(0, b"early".to_vec())]);
        assert_eq!(setup.send_statuses(), [WcStatus::SUCCESS]);
    }
}

#[test]
fn memory_access_is_checked_in_the_domain_of_the_srq() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let region = setup.region(0, 5);
        let (own, other) = (setup.srqs[0].srq_num, setup.srqs[1].srq_num);
        let word = setup.buf(&7_u64.to_ne_bytes());
        setup
            .sender
            .post_send(wr::fetch_add(word, region.remote(), 3).for_srq(own))
            .expect("fetch and add");
        let word = setup.buf(&[0; 8]);
        setup
            .sender
            .post_send(wr::read(word, region.remote()).for_srq(own))
            .expect("read");
        let mut read = Vec::new();
        for completion in setup.send_cq.poll().expect("poll") {
            read.push(fixture::buf_bytes(
                setup.sender.retire(completion).expect("in flight"),
            ));
        }
        assert_eq!(read, [5_u64, 8].map(u64::to_ne_bytes));
        let write = wr::write(wr::Inline(&[0; 9]), region.remote());
        let rejected = setup.sender.post_send(write.for_srq(own));
        let error = rejected.expect_err("too long").error();
        assert_eq!(error, PostError::BeyondRemote { len: 9, remote: 8 });
        let write = wr::write(wr::Inline(&[0; 8]), region.remote());
        setup.sender.post_send(write.for_srq(other)).expect("write");
        assert_eq!(
            setup.send_statuses(),
            [WcStatus::REM_ACCESS_ERR],
            "the key belongs to another protection domain"
        );
        assert_eq!(setup.receiver.state().expect("state"), QpState::ERR);
    }
}

#[test]
fn a_message_to_an_srq_of_another_xrc_domain_fails() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let other_xrcd = setup.context.open_xrcd().expect("XRC domain");
        let mut target = TargetSrq::new(&setup.context, &other_xrcd);
        target.post_recvs(1);
        let buf = setup.buf(b"lost");
        setup
            .sender
            .post_send(wr::send(buf).for_srq(target.srq_num))
            .expect("send");
        assert_eq!(setup.send_statuses(), [WcStatus::REM_INV_REQ_ERR]);
        assert_eq!((target.retire().len(), setup.pool.available()), (0, 8));
    }
}

#[test]
fn a_receive_retires_only_at_its_srq() {
    let mut setup = Setup::new(PROFILES[0]);
    setup.srqs[0].post_recvs(1);
    let srq_num = setup.srqs[0].srq_num;
    setup
        .sender
        .post_send(wr::send(wr::Empty).for_srq(srq_num))
        .expect("send");
    let [first, second] = &mut setup.srqs;
    let completion = first.cq.poll().expect("poll").next().expect("received");
    assert_eq!(
        second
            .srq
            .retire(completion)
            .expect_err("posted on the first queue")
            .queue,
        first.srq.id()
    );
    assert_eq!(
        first.pool.available(),
        7,
        "the first queue keeps the buffer"
    );
}

#[test]
#[cfg_attr(miri, ignore = "opens a file")]
fn a_file_identifies_an_xrc_domain() {
    let fake = with_xrc(PROFILES[0]);
    let context = open(&fake);
    let file = File::open("/proc/self/exe").expect("a file");
    let open_xrcd = |how| context.open_xrcd_by_file(&file, how);
    open_xrcd(XrcdOpen::Existing).expect_err("no domain exists yet");
    let first = open_xrcd(XrcdOpen::CreateNew).expect("new XRC domain");
    open_xrcd(XrcdOpen::CreateNew).expect_err("the domain exists");
    let second = open_xrcd(XrcdOpen::Existing).expect("existing object");
    assert_eq!(fake.live().xrcds, 1);
    // The queue is created through one handle, and the queue pair through the other.
    let mut target = TargetSrq::new(&context, &first);
    let mut receiver = second.create_xrc_recv_qp().expect("XRC receive queue pair");
    let pd = context.alloc_pd().expect("protection domain");
    let mut cq = context
        .create_cq(CqOptions::default())
        .expect("completion queue");
    let mut sender = pd
        .create_xrc_send_qp(&cq, small())
        .expect("XRC send queue pair");
    connect(&mut sender, &mut receiver, &path());
    target.post_recvs(1);
    sender
        .post_send(wr::send(wr::Inline(b"shared")).for_srq(target.srq_num))
        .expect("send");
    assert_eq!(target.messages(), [(0, b"shared".to_vec())]);
    sender
        .retire(cq.poll().expect("poll").next().expect("sent"))
        .expect("in flight")
        .check()
        .expect("success");
}

#[test]
fn objects_of_different_contexts_are_rejected() {
    let fake = with_xrc(PROFILES[0]);
    let (one, two) = (open(&fake), open(&fake));
    let (xrcd, pd) = (
        one.open_xrcd().expect("XRC domain"),
        one.alloc_pd().expect("protection domain"),
    );
    let cq = two
        .create_cq(CqOptions::default())
        .expect("completion queue");
    let error = pd
        .create_xrc_srq(&xrcd, &cq, SrqOptions::default())
        .expect_err("a completion queue of another context");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    let error = pd
        .create_xrc_send_qp(&cq, small())
        .expect_err("a completion queue of another context");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
}

#[test]
fn missing_xrc_support_is_reported() {
    for profile in PROFILES {
        let fake = Fake::new(profile);
        let context = open(&fake);
        assert!(
            context
                .open_xrcd()
                .expect_err("unsupported")
                .is_unsupported()
        );
        let (pd, cq) = (
            context.alloc_pd().expect("protection domain"),
            context
                .create_cq(CqOptions::default())
                .expect("completion queue"),
        );
        assert!(
            pd.create_xrc_send_qp(&cq, small())
                .expect_err("unsupported")
                .is_unsupported()
        );
    }
}
