//! Objects keep their parents alive. After a queue pair is destroyed, the device no longer accesses
//! the memory of its requests.

use std::any::Any;
use std::time::{Duration, Instant};

use crate::fixture::{
    Fake, IN_ORDER, PROFILES, Pair, connect, open, order_of, pairs, parents, small,
};
use fake_provider::{Live, Profile};
use ibverbs::flow::FlowRule;
use ibverbs::group::ThreadGroup;
use ibverbs::mw::Type2;
use ibverbs::{
    AccessFlags, AhAttr, CompletionQueue, Context, CqOptions, DatagramAttr, ErrorKind, Lid,
    ProtectionDomain, Qkey, RawPacket, Rc, SrqOptions, Ud, wr,
};

/// Creates every kind of object, optionally with requests in flight. Each is boxed to be dropped
/// separately.
fn everything(fake: &Fake, in_flight: bool) -> Vec<Option<Box<dyn Send>>> {
    let context = open(fake);
    let pd = context.alloc_pd().expect("protection domain");
    let cq = context
        .create_cq(CqOptions::default())
        .expect("completion queue");
    let mut a = pd.create_qp::<Rc>(&cq, &cq, small()).expect("a");
    let mut b = pd.create_qp::<Rc>(&cq, &cq, small()).expect("b");
    connect(&mut a, &mut b);
    let pool = pd.pool(4, 64).expect("pool");
    let frozen = pool.take().expect("a free buffer").freeze();
    if in_flight {
        let held = a.hold(&frozen).expect("hold");
        fake.stall();
        b.post_recv(wr::recv(pool.take().expect("a free buffer")))
            .expect("receive");
        a.post_send(wr::send(held)).expect("send");
        a.post_send(wr::send(pool.take().expect("a free buffer")))
            .expect("send");
    }
    vec![
        Some(Box::new((a, b))),
        Some(Box::new(cq)),
        Some(Box::new(pool)),
        Some(Box::new(frozen)),
        Some(Box::new(pd)),
        Some(Box::new(context)),
    ]
}

#[test]
fn objects_may_be_dropped_in_any_order() {
    // Each order with and without requests in flight. Miri is slow, so it runs nine cases.
    let step = if cfg!(miri) { 163 } else { 1 };
    for case in (0..2 * 720).step_by(step) {
        let fake = Fake::extended();
        let mut objects = everything(&fake, case % 2 == 0);
        for object in order_of(6, case / 2) {
            drop(objects[object].take());
        }
    }
}

/// A context, a protection domain and a completion queue of a device with all verbs.
struct Parents {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

/// Objects, dropped separately.
type Objects = Vec<Option<Box<dyn Any>>>;

macro_rules! objects {
    ($($object:expr),*) => { vec![$(Some(Box::new($object) as Box<dyn Any>)),*] };
}

/// The name of a kind of objects, and what creates some.
type Kind = (&'static str, fn(&Parents) -> Objects);

/// The kinds of objects that [`everything`] lacks, with those that they must outlive or that keep
/// them alive.
const KINDS: &[Kind] = &[
    ("channel", |parents| {
        let channel = parents.context.create_comp_channel().expect("channel");
        let options = CqOptions::new().channel(&channel);
        let mut cq = parents.context.create_cq(options).expect("queue");
        cq.arm(false).expect("arm");
        objects![channel, cq]
    }),
    ("address", |parents| {
        let Parents { context, pd, cq } = parents;
        let mut qp = pd.create_qp::<Ud>(cq, cq, small()).expect("qp");
        let attr = DatagramAttr::new(1, Qkey(7));
        qp.start(&attr).expect("RTS");
        let own = context.gids(1).expect("GID table")[0];
        let attr = AhAttr::for_gid(1, own.index, own.gid);
        let address = pd.create_ah(&attr).expect("address");
        qp.hold_address(&address).expect("hold");
        let group = "::ffff:239.1.2.3".parse().expect("a GID");
        qp.attach_mcast(group, Lid(0)).expect("attach");
        objects![address, qp]
    }),
    ("shared receive queue", |parents| {
        let Parents { pd, cq, .. } = parents;
        let mut srq = pd.create_srq(SrqOptions::new()).expect("queue");
        let pool = pd.pool(1, 64).expect("pool");
        let receive = wr::recv(pool.take().expect("a free buffer"));
        srq.post_recv(receive).expect("receive");
        let qp = pd.create_qp_with_srq::<Rc>(cq, cq, &srq, small());
        #[cfg(feature = "mlx5")]
        let pool = {
            let target = pd.create_dc_target(cq, &srq, ibverbs::dc::DcKey(1));
            (pool, target.expect("target"))
        };
        objects![srq, qp.expect("qp"), pool]
    }),
    ("thread domain", |parents| {
        let Parents { context, pd, cq } = parents;
        let parent = || pd.alloc_parent_domain(context.alloc_td()?);
        let used = parent().expect("domain");
        let qp = used.create_qp::<Rc>(cq, cq, small()).expect("qp");
        objects![parent().expect("domain"), qp]
    }),
    ("thread group", |parents| {
        let group = ThreadGroup::new(&parents.pd).expect("group");
        let cq = group.create_cq(CqOptions::new()).expect("queue");
        let qp = group.create_qp::<Rc>(&cq, &cq, small()).expect("qp");
        objects![group, cq, qp]
    }),
    ("window", |parents| {
        let Parents { pd, cq, .. } = parents;
        let mut a = pd.create_qp::<Rc>(cq, cq, small()).expect("a");
        let mut b = pd.create_qp::<Rc>(cq, cq, small()).expect("b");
        connect(&mut a, &mut b);
        let region = pd.shared(64, AccessFlags::MW_BIND).expect("region");
        let window = || pd.alloc_mw::<Type2>().expect("window");
        let bind = || window().bind(&region, AccessFlags::REMOTE_READ);
        let (bound, binding) = bind().expect("binding");
        a.post_send(wr::bind(binding)).expect("bind");
        objects![bound, region, (a, b, window())]
    }),
    ("regions of one memory", |parents| {
        let other = parents.context.alloc_pd().expect("domain");
        let access = AccessFlags::REMOTE_WRITE;
        let first = parents.pd.shared(64, access).expect("region");
        let second = first.register_in(&other, access).expect("region");
        let part = second.slice(8..16).expect("in range");
        objects![first, second, (part, other)]
    }),
    ("device memory", |parents| {
        let Parents { context, pd, cq } = parents;
        let options = small().device_addresses(true);
        let mut qp = pd.create_qp::<Rc>(cq, cq, options).expect("qp");
        let memory = context.alloc_dm(64, 0).expect("memory");
        let region = pd.reg_dm(&memory, 0, 64, AccessFlags::empty());
        let region = region.expect("region");
        qp.hold(&region).expect("hold");
        objects![memory, region, qp]
    }),
    ("flow rule", |parents| {
        let Parents { pd, cq, .. } = parents;
        let mut qp = pd.create_qp::<RawPacket>(cq, cq, small()).expect("qp");
        qp.create_flow(&FlowRule::new(1, [])).expect("rule");
        objects![qp]
    }),
];

#[test]
fn each_kind_of_object_may_be_dropped_in_any_order() {
    for (kind, create) in KINDS {
        println!("{kind}");
        let mut case = 0;
        loop {
            let profile = IN_ORDER[case % 2];
            let fake = Fake::new(Profile {
                more_verbs: true,
                extended_cq: profile.extended_cq || *kind == "thread group",
                ..profile
            });
            if case % 4 >= 2 {
                fake.stall();
            }
            let (context, pd, cq) = parents(&fake);
            let parents = Parents { context, pd, cq };
            let mut objects = create(&parents);
            let Parents { context, pd, cq } = parents;
            objects.extend(objects![cq, pd, context]);
            let count = objects.len();
            for object in order_of(count, case / 4) {
                drop(objects[object].take());
            }
            // Miri is slow.
            case += if cfg!(miri) { 397 } else { 1 };
            if case >= 4 * (1..=count).product::<usize>() {
                break;
            }
        }
    }
}

#[test]
fn a_buffer_keeps_its_region_and_a_region_its_domain() {
    let fake = Fake::extended();
    let mut buf = open(&fake)
        .alloc_pd()
        .expect("protection domain")
        .buf(64)
        .expect("buffer");
    buf.fill(7);
    assert_eq!(
        fake.live(),
        Live {
            contexts: 1,
            pds: 1,
            mrs: 1,
            ..Live::default()
        }
    );
    let frozen = buf.freeze();
    let _region = open(&fake)
        .alloc_pd()
        .expect("protection domain")
        .shared(8, AccessFlags::REMOTE_READ)
        .expect("region");
    assert_eq!(frozen[63], 7);
}

#[test]
fn destroying_a_queue_pair_returns_buffers_in_flight() {
    for mut pair in pairs(PROFILES) {
        pair.fake.stall();
        pair.post_recvs(3);
        for byte in [b"0", b"1"] {
            let buf = pair.buf(byte);
            pair.a
                .post_send(wr::send(buf).tag(9).signaled(false))
                .expect("send");
        }
        pair.a.post_send(wr::send(wr::Inline(b"2"))).expect("send");
        let of_a = pair.a.destroy().expect("a");
        let of_b = pair.b.destroy().expect("b");
        assert_eq!(
            of_a.sends
                .iter()
                .map(|(tag, buf)| (*tag, buf[0]))
                .collect::<Vec<_>>(),
            [(9, b'0'), (9, b'1')]
        );
        assert_eq!(of_b.recvs.len(), 3);
        // The device must not access the buffers after the queue pair is destroyed.
        let mut bufs: Vec<_> = of_a
            .sends
            .into_iter()
            .chain(of_b.recvs)
            .map(|(_, buf)| buf)
            .collect();
        for buf in &mut bufs {
            buf.fill(5);
        }
        pair.fake.resume();
        assert!(bufs.iter().all(|buf| buf.iter().all(|byte| *byte == 5)));
    }
}

#[test]
fn dropping_a_queue_pair_returns_buffers_to_the_pool() {
    for mut pair in pairs(PROFILES) {
        let free = pair.pool.available();
        pair.fake.stall();
        pair.post_recvs(3);
        let buf = pair.buf(b"x");
        pair.a.post_send(wr::send(buf)).expect("send");
        assert_eq!(pair.pool.available(), free - 4);
        drop((pair.a, pair.b));
        assert_eq!(pair.pool.available(), free);
    }
}

#[test]
fn frozen_memory_thaws_only_when_no_queue_pair_holds_it() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(1);
        let frozen = pair.buf(b"frozen").freeze();
        let held = pair.a.hold(&frozen).expect("hold");
        pair.a.hold(&frozen).expect("second hold");
        pair.a.post_send(wr::send(held)).expect("send");
        drop(pair.retire());
        let frozen = frozen.try_thaw().expect_err("held, with nothing in flight");
        drop(pair.a);
        let clone = frozen.clone();
        let frozen = frozen.try_thaw().expect_err("a clone exists");
        drop(clone);
        let mut buf = frozen.try_thaw().expect("the last reference");
        buf[0] = b'F';
        assert_eq!(&buf[..], b"Frozen");
    }
}

#[test]
fn a_reposted_buffer_has_its_full_capacity() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(1);
        for round in 0..10_u8 {
            let length = usize::from(round) % 7;
            pair.a
                .post_send(wr::send(wr::Inline(&vec![round; length])))
                .expect("send");
            let (_, mut received) = pair.retire();
            let buf = received.remove(0).into_buf().expect("posted with a buffer");
            assert_eq!((&buf[..], buf.capacity()), (&vec![round; length][..], 64));
            pair.b.post_recv(wr::recv(buf)).expect("receive");
        }
    }
}

#[test]
fn draining_ends_at_its_timeout() {
    let mut pair = Pair::new(Profile::SIW);
    pair.b.to_error().expect("ERR state");
    // Soft-iWARP never completes it.
    let receive = wr::recv(pair.buf(b""));
    pair.b.post_recv(receive).expect("receive");
    let timeout = Duration::from_millis(1);
    let start = Instant::now();
    let drained = pair.b.drain(&mut [&mut pair.cq], timeout, |_| ());
    let error = drained.expect_err("a receive is in flight");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(start.elapsed() > timeout);
    assert_eq!(pair.b.destroy().expect("destroyed").recvs.len(), 1);
    drop((pair.a, pair.pool, pair.cq, pair.pd, pair.context));
    pair.fake.assert_clean();

    let mut pair = Pair::new(Profile::RXE);
    pair.post_recvs(2);
    let mut retired = 0;
    let drained = pair.b.drain(&mut [&mut pair.cq], timeout * 5000, |each| {
        retired += usize::from(each.is_ok());
    });
    drained.expect("drained");
    assert_eq!(retired, 3, "two receives and the last send");

    let mut pair = Pair::new(Profile::RXE);
    let drained = pair.b.drain(&mut [&mut pair.cq], timeout, |_| {
        panic!("an idle queue pair posts nothing")
    });
    drained.expect("drained");
}
