//! Thread domains and parent domains on the fake device: use, drop orders and errors.

use crate::fixture::{self, Fake, PROFILES, connect, open, parents, small};
use fake_provider::{Live, Profile, Verb};
use ibverbs::{CqOptions, ErrorKind, Rc, SrqOptions, Uc, group::ThreadGroup, wr};

/// Creates a fake device that supports thread domains.
fn with_domains(profile: Profile) -> Fake {
    Fake::new(Profile {
        more_verbs: true,
        ..profile
    })
}

#[test]
fn a_queue_pair_of_a_thread_domain_works_on_any_thread() {
    for profile in PROFILES {
        let fake = with_domains(profile);
        let context = open(&fake);
        let pd = context.alloc_pd().expect("protection domain");
        let mut cq = context
            .create_cq(CqOptions::new().depth(31))
            .expect("completion queue");
        let parent = pd
            .alloc_parent_domain(context.alloc_td().expect("thread domain"))
            .expect("parent domain");
        assert_eq!(
            fake.live(),
            Live {
                contexts: 1,
                pds: 1,
                cqs: 1,
                tds: 1,
                parents: 1,
                ..Live::default()
            }
        );
        let mut a = parent.create_qp::<Rc>(&cq, &cq, small()).expect("a");
        let mut b = pd.create_qp::<Rc>(&cq, &cq, small()).expect("b");
        assert_eq!(a.is_extended(), profile.extended_qp);
        connect(&mut a, &mut b);
        let pool = pd.pool(2, 64).expect("pool");
        b.post_recv(wr::recv(pool.take().expect("a free buffer")))
            .expect("receive");
        let buf = pool.take().expect("a free buffer");
        let mut a = std::thread::spawn(move || {
            a.post_send(wr::send(buf)).expect("send");
            a
        })
        .join()
        .expect("no panic");
        for completion in cq.poll().expect("poll") {
            let qp = if completion.queue() == a.id() {
                &mut a
            } else {
                &mut b
            };
            qp.retire(completion)
                .expect("in flight")
                .check()
                .expect("success");
        }
    }
}

#[test]
fn a_parent_domain_creates_every_kind_of_queue_pair() {
    let fake = with_domains(PROFILES[0]);
    let (context, pd, cq) = parents(&fake);
    let srq = pd
        .create_srq(SrqOptions::new().max_wr(7))
        .expect("shared receive queue");
    let parent = || pd.alloc_parent_domain(context.alloc_td()?);
    let shared = parent()
        .expect("parent domain")
        .create_qp_with_srq::<Uc>(&cq, &cq, &srq, small())
        .expect("queue pair");
    let _sender = parent()
        .expect("parent domain")
        .create_xrc_send_qp(&cq, small())
        .expect("queue pair");
    assert_eq!(
        (fake.live().tds, fake.live().parents),
        (2, 2),
        "one domain per queue pair"
    );
    drop(shared);
    assert_eq!((fake.live().tds, fake.live().parents), (1, 1));
}

#[test]
fn domains_may_be_dropped_unused_or_before_their_users() {
    let fake = with_domains(PROFILES[0]);
    let (context, pd, cq) = parents(&fake);
    drop(context.alloc_td().expect("thread domain"));
    let unused = pd
        .alloc_parent_domain(context.alloc_td().expect("thread domain"))
        .expect("parent domain");
    let used = pd
        .alloc_parent_domain(context.alloc_td().expect("thread domain"))
        .expect("parent domain");
    let _qp = used.create_qp::<Rc>(&cq, &cq, small()).expect("queue pair");
    drop((context, pd, cq));
    drop(unused);
    assert_eq!(
        fake.live(),
        Live {
            contexts: 1,
            pds: 1,
            cqs: 1,
            qps: 1,
            tds: 1,
            parents: 1,
            ..Live::default()
        }
    );
}

#[test]
fn failed_allocations_leak_nothing() {
    let fake = with_domains(PROFILES[0]);
    let (context, other) = (open(&fake), open(&fake));
    let pd = context.alloc_pd().expect("protection domain");
    let cq = context
        .create_cq(CqOptions::default())
        .expect("completion queue");
    let td = other.alloc_td().expect("thread domain");
    assert_eq!(
        pd.alloc_parent_domain(td)
            .expect_err("a thread domain of another context")
            .kind(),
        ErrorKind::Mismatch
    );
    fake.fail_next(Verb::AllocParentDomain, libc::ENOMEM);
    pd.alloc_parent_domain(context.alloc_td().expect("thread domain"))
        .expect_err("the driver refuses");
    let parent = pd
        .alloc_parent_domain(context.alloc_td().expect("thread domain"))
        .expect("parent domain");
    // The attempts: the extended verb with and without window operations, then the classic verb.
    for verb in [Verb::CreateQpEx, Verb::CreateQpEx, Verb::CreateQp] {
        fake.fail_next(verb, libc::ENOMEM);
    }
    parent
        .create_qp::<Rc>(&cq, &cq, small())
        .expect_err("the driver refuses");
    assert_eq!((fake.live().tds, fake.live().parents), (0, 0));
}

#[test]
fn missing_thread_domain_support_is_reported() {
    let fake = Fake::extended();
    let context = open(&fake);
    assert!(
        context
            .alloc_td()
            .expect_err("no thread domains")
            .is_unsupported()
    );
}

#[test]
fn queues_of_a_group_share_its_domain_and_keep_it() {
    for profile in PROFILES.into_iter().filter(|profile| profile.extended_cq) {
        let fake = with_domains(profile);
        let context = open(&fake);
        let pd = context.alloc_pd().expect("protection domain");
        let group = ThreadGroup::new(&pd).expect("group");
        let options = CqOptions::new().depth(31);
        let mut cq = group.create_cq(options).expect("completion queue");
        let mut srq = pd.create_srq(SrqOptions::new().max_wr(7)).expect("queue");
        let mut pairs = Vec::new();
        for _ in 0..3 {
            let mut a = group.create_qp::<Rc>(&cq, &cq, small()).expect("a");
            let mut b = group
                .create_qp_with_srq::<Rc>(&cq, &cq, &srq, small())
                .expect("b");
            connect(&mut a, &mut b);
            pairs.push((a, b));
        }
        let live = fake.live();
        assert_eq!((live.tds, live.parents, live.qps, live.cqs), (1, 1, 6, 1));
        // The group and the domain may be dropped first.
        let pool = pd.pool(3, 64).expect("pool");
        drop((group, pd, context));
        for (a, _) in &mut pairs {
            let buf = pool.take().expect("a free buffer");
            srq.post_recv(wr::recv(buf)).expect("receive");
            a.post_send(wr::send(wr::Inline(b"hi"))).expect("send");
        }
        let (mut sent, mut received) = (0, 0);
        for completion in cq.poll().expect("poll") {
            if let Some(queue_pair) = srq.queue_pair(&completion) {
                assert!(pairs.iter().any(|(_, b)| b.id() == queue_pair));
                let retired = srq.retire(completion).expect("in flight");
                assert_eq!(fixture::buf_bytes(retired), b"hi");
                received += 1;
            } else {
                let mut senders = pairs.iter_mut().map(|(a, _)| a);
                let sender = senders.find(|a| a.id() == completion.queue());
                let retired = sender.expect("a sender").retire(completion);
                retired.expect("in flight").check().expect("success");
                sent += 1;
            }
        }
        assert_eq!((sent, received), (3, 3));
        drop(cq);
        drop(pairs);
        assert_eq!((fake.live().tds, fake.live().parents), (0, 0));
    }
}

#[test]
fn a_completion_queue_of_another_group_is_rejected() {
    let fake = with_domains(PROFILES[0]);
    let context = open(&fake);
    let pd = context.alloc_pd().expect("protection domain");
    let (group, other) = (ThreadGroup::new(&pd), ThreadGroup::new(&pd));
    let (group, other) = (group.expect("group"), other.expect("group"));
    let cq = other.create_cq(CqOptions::default());
    let cq = cq.expect("completion queue");
    let error = group.create_qp::<Uc>(&cq, &cq, small());
    let error = error.expect_err("of another group");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    fake.fail_next(Verb::CreateCqEx, libc::ENOMEM);
    group
        .create_cq(CqOptions::default())
        .expect_err("the driver refuses");
}
