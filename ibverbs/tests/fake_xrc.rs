//! Extended reliable connections on the fake device: whose a message is, what it may reach, drop
//! orders, domains by file.

mod fake;

use std::fs::File;

use fake::{PROFILES, open, path, small};
use fake_provider::{Fake, Live, Profile};
use ibverbs::{
    AccessFlags, Buf, CompletionQueue, Context, CqOptions, ErrorKind, Pool, ProtectionDomain,
    QpState, QueuePair, RcPath, Retired, SharedReceiveQueue, SharedRegion, SrqOptions, WcStatus,
    qp::QpChange,
    wr,
    xrc::{SrqNum, Xrc, XrcDomain, XrcRecvQueuePair, XrcSend, XrcdOpen},
};

/// A queue of an XRC domain, with a protection domain and a completion queue of its own, as in a
/// process of its own.
struct Store {
    srq: SharedReceiveQueue<Xrc>,
    number: SrqNum,
    cq: CompletionQueue,
    pool: Pool,
    pd: ProtectionDomain,
}

impl Store {
    fn new(context: &Context, xrcd: &XrcDomain) -> Self {
        let pd = context.alloc_pd().expect("protection domain");
        let cq = context
            .create_cq(CqOptions {
                depth: 31,
                ..CqOptions::default()
            })
            .expect("completion queue");
        let options = SrqOptions {
            max_wr: 7,
            max_sge: 1,
            max_batch: 7,
        };
        let srq = pd
            .create_xrc_srq(xrcd, &cq, options)
            .expect("shared receive queue");
        let number = srq.srq_num().expect("number");
        let pool = pd.pool(8, 64).expect("pool");
        Self {
            srq,
            number,
            cq,
            pool,
            pd,
        }
    }

    fn receives(&mut self, count: u64) {
        for tag in 0..count {
            self.srq
                .post_recv(wr::recv(self.pool.take().expect("a free buffer")).tag(tag))
                .expect("a free slot");
        }
    }

    fn retire(&mut self) -> Vec<Retired> {
        let completions = self.cq.poll().expect("poll");
        completions
            .map(|completion| self.srq.retire(completion).expect("in flight"))
            .collect()
    }

    /// What was received.
    fn texts(&mut self) -> Vec<(u64, Vec<u8>)> {
        let all = self.retire();
        all.into_iter()
            .map(|retired| (retired.tag(), fake::bytes(retired)))
            .collect()
    }
}

struct Setup {
    sender: QueuePair<XrcSend>,
    send_cq: CompletionQueue,
    pool: Pool,
    receiver: XrcRecvQueuePair,
    stores: [Store; 2],
    xrcd: XrcDomain,
    context: Context,
    fake: Fake,
}

/// Connects the halves.
fn connect(sender: &mut QueuePair<XrcSend>, receiver: &mut XrcRecvQueuePair, path: &RcPath) {
    let (here, there) = (
        sender.endpoint(path).expect("endpoint"),
        receiver.endpoint(path).expect("endpoint"),
    );
    sender.init(path).expect("INIT state");
    receiver.init(path).expect("INIT state");
    receiver.connect(path, &here).expect("RTS state");
    sender.connect(path, &there).expect("RTS state");
}

fn with_xrc(profile: Profile) -> Fake {
    Fake::new(Profile {
        more_verbs: true,
        ..profile
    })
}

impl Setup {
    fn new(profile: Profile) -> Self {
        let fake = with_xrc(profile);
        let context = open(&fake);
        let xrcd = context.open_xrcd().expect("XRC domain");
        let stores = [(); 2].map(|()| Store::new(&context, &xrcd));
        let mut receiver = xrcd.create_xrc_recv_qp().expect("receiving half");
        let pd = context.alloc_pd().expect("protection domain");
        let send_cq = context
            .create_cq(CqOptions {
                depth: 31,
                ..CqOptions::default()
            })
            .expect("completion queue");
        let mut sender = pd
            .create_xrc_send_qp(&send_cq, small())
            .expect("sending half");
        assert_eq!(
            (sender.is_extended(), sender.caps().max_recv_wr),
            (profile.extended_qp, 0)
        );
        connect(&mut sender, &mut receiver, &path());
        let pool = pd.pool(8, 64).expect("pool");
        Self {
            sender,
            send_cq,
            pool,
            receiver,
            stores,
            xrcd,
            context,
            fake,
        }
    }

    fn buf(&self, bytes: &[u8]) -> Buf {
        let mut buf = self.pool.take().expect("a free buffer");
        buf.set_len(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// How the sends ended.
    fn sent(&mut self) -> Vec<WcStatus> {
        let completions = self.send_cq.poll().expect("poll");
        completions
            .map(|completion| self.sender.retire(completion).expect("in flight").status())
            .collect()
    }

    fn region(&self, place: usize, bytes: u64) -> SharedRegion {
        let region = self.stores[place]
            .pd
            .shared(8, path().access)
            .expect("region");
        region.write(0, &bytes.to_ne_bytes()).expect("in range");
        region
    }

    fn finish(self) {
        let Self {
            sender,
            send_cq,
            pool,
            receiver,
            stores,
            xrcd,
            context,
            fake,
        } = self;
        drop((sender, send_cq, pool, receiver, stores, xrcd, context));
        fake.assert_clean();
    }
}

#[test]
fn a_message_takes_a_receive_of_the_queue_that_it_names_and_completes_there() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let [first, second] = &mut setup.stores;
        first.receives(3);
        second.receives(3);
        let (a, b) = (first.number, second.number);
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
        assert_eq!(setup.sent(), [WcStatus::SUCCESS; 3]);
        let qp_num = setup.receiver.qp_num();
        let [first, second] = &mut setup.stores;
        assert_eq!(first.texts(), [(0, b"two".to_vec())]);
        let completions = second.cq.poll().expect("poll");
        let seen: Vec<_> = completions
            .map(|completion| (completion.queue(), completion.qp_num()))
            .collect();
        assert_eq!(
            seen,
            [(second.srq.id(), qp_num); 2],
            "the store's, by the receiving half"
        );
        setup.finish();
    }
}

#[test]
fn immediate_data_and_tags_come_with_the_receive() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        setup.stores[1].receives(1);
        let number = setup.stores[1].number;
        setup
            .sender
            .post_send(wr::send_with_imm(wr::Inline(b"six"), 66).for_srq(number))
            .expect("send");
        let mut received = setup.stores[1].retire();
        let one = received.remove(0);
        assert_eq!(
            (one.imm_data(), one.tag(), fake::bytes(one)),
            (Some(66), 0, b"six".to_vec())
        );
        assert_eq!(setup.sent(), [WcStatus::SUCCESS]);
        setup.finish();
    }
}

#[test]
fn requests_of_one_batch_can_name_different_queues() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let numbers = [0, 1, 0].map(|place: usize| setup.stores[place].number);
        setup.stores.iter_mut().for_each(|store| store.receives(2));
        let batch = setup.sender.batch(|batch| -> Result<(), ibverbs::Error> {
            for (text, number) in [b"one", b"two", b"six"].into_iter().zip(numbers) {
                batch.send(wr::send(wr::Inline(text)).for_srq(number))?;
            }
            Ok(())
        });
        batch.expect("posted");
        assert_eq!(
            setup.stores[0].texts(),
            [(0, b"one".to_vec()), (1, b"six".to_vec())]
        );
        assert_eq!(setup.stores[1].texts(), [(0, b"two".to_vec())]);
        assert_eq!(setup.sent(), [WcStatus::SUCCESS; 3]);
        setup.finish();
    }
}

#[test]
fn a_message_waits_for_a_receive_of_the_queue_that_it_names() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let number = setup.stores[0].number;
        setup
            .sender
            .post_send(wr::send(wr::Inline(b"early")).for_srq(number))
            .expect("send");
        setup.stores[1].receives(1);
        assert!(setup.sent().is_empty());
        setup.stores[0].receives(1);
        assert_eq!(setup.stores[0].texts(), [(0, b"early".to_vec())]);
        assert_eq!(setup.sent(), [WcStatus::SUCCESS]);
        setup.finish();
    }
}

#[test]
fn memory_is_reached_by_the_protection_domain_of_the_queue_that_is_named() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let region = setup.region(0, 5);
        let (mine, other) = (setup.stores[0].number, setup.stores[1].number);
        let word = setup.buf(&7_u64.to_ne_bytes());
        setup
            .sender
            .post_send(wr::fetch_add(word, region.remote(), 3).for_srq(mine))
            .expect("fetch and add");
        let word = setup.buf(&[0; 8]);
        setup
            .sender
            .post_send(wr::read(word, region.remote()).for_srq(mine))
            .expect("read");
        let mut read = Vec::new();
        for completion in setup.send_cq.poll().expect("poll") {
            read.push(fake::bytes(
                setup.sender.retire(completion).expect("in flight"),
            ));
        }
        assert_eq!(read, [5_u64, 8].map(u64::to_ne_bytes));
        let write = wr::write(wr::Inline(&[0; 8]), region.remote());
        setup.sender.post_send(write.for_srq(other)).expect("write");
        assert_eq!(
            setup.sent(),
            [WcStatus::REM_ACCESS_ERR],
            "a key of the other's domain"
        );
        assert_eq!(setup.receiver.state().expect("state"), QpState::ERR);
        drop(region);
        setup.finish();
    }
}

#[test]
fn a_queue_of_another_xrc_domain_cannot_be_named() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let elsewhere = setup.context.open_xrcd().expect("XRC domain");
        let mut store = Store::new(&setup.context, &elsewhere);
        store.receives(1);
        let buf = setup.buf(b"lost");
        setup
            .sender
            .post_send(wr::send(buf).for_srq(store.number))
            .expect("send");
        assert_eq!(setup.sent(), [WcStatus::REM_INV_REQ_ERR]);
        assert_eq!((store.retire().len(), setup.pool.available()), (0, 8));
        drop((store, elsewhere));
        setup.finish();
    }
}

#[test]
fn a_receive_retires_at_its_queue_and_at_no_other() {
    let mut setup = Setup::new(PROFILES[0]);
    setup.stores[0].receives(1);
    let number = setup.stores[0].number;
    setup
        .sender
        .post_send(wr::send(wr::Empty).for_srq(number))
        .expect("send");
    let [first, second] = &mut setup.stores;
    let completion = first.cq.poll().expect("poll").next().expect("received");
    assert_eq!(
        second
            .srq
            .retire(completion)
            .expect_err("not its own")
            .queue,
        first.srq.id()
    );
    assert_eq!(first.pool.available(), 7, "the buffer stays with its queue");
    setup.finish();
}

#[test]
fn buffers_of_a_queue_come_back_when_no_receiving_half_of_its_domain_is_left() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let another = setup.xrcd.create_xrc_recv_qp().expect("receiving half");
        setup.stores[0].receives(3);
        let region = setup.region(0, 0);
        let Setup {
            sender,
            send_cq,
            pool: sent,
            receiver,
            stores: [first, second],
            xrcd,
            context,
            fake,
        } = setup;
        let Store {
            srq, pool, pd, cq, ..
        } = first;
        drop(srq);
        assert_eq!(
            (fake.live().srqs, pool.available()),
            (1, 5),
            "destroyed, and a message may be under way"
        );
        let region = region
            .try_into_buf()
            .expect_err("peers may reach the domain's memory")
            .into_region();
        drop(receiver);
        assert_eq!(pool.available(), 5);
        drop(another);
        assert_eq!(pool.available(), 8);
        drop(region.try_into_buf().expect("no peer can reach it"));
        // Without a receiving half they come back with the queue.
        let Store {
            mut srq,
            pool: others,
            cq: its_cq,
            pd: its_pd,
            ..
        } = second;
        srq.post_recv(wr::recv(others.take().expect("a free buffer")))
            .expect("a free slot");
        drop(srq);
        assert_eq!(others.available(), 8);
        drop((
            sender, send_cq, sent, xrcd, context, pool, pd, cq, others, its_cq, its_pd,
        ));
        fake.assert_clean();
    }
}

/// Everything of a connection, with requests in flight, each in a box that drops it.
fn everything(profile: Profile) -> (Fake, Vec<Option<Box<dyn Send>>>) {
    let mut setup = Setup::new(profile);
    setup.fake.stall();
    setup.stores[0].receives(3);
    let (number, buf) = (setup.stores[0].number, setup.buf(b"never"));
    setup
        .sender
        .post_send(wr::send(buf).for_srq(number))
        .expect("send");
    let Setup {
        sender,
        send_cq,
        receiver,
        stores: [first, second],
        xrcd,
        fake,
        ..
    } = setup;
    drop(second);
    let Store { srq, cq, pool, .. } = first;
    let all: Vec<Option<Box<dyn Send>>> = vec![
        Some(Box::new((sender, send_cq))),
        Some(Box::new(receiver)),
        Some(Box::new(srq)),
        Some(Box::new(cq)),
        Some(Box::new(pool)),
        Some(Box::new(xrcd)),
    ];
    (fake, all)
}

#[test]
fn the_parts_of_a_connection_may_be_dropped_in_any_order() {
    let mut orders = vec![vec![]];
    for place in 0..6 {
        let longer = |order: &Vec<usize>| -> Vec<Vec<usize>> {
            (0..=order.len())
                .map(|at| {
                    let mut order = order.clone();
                    order.insert(at, place);
                    order
                })
                .collect()
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    assert_eq!(orders.len(), 720);
    // Miri takes its time.
    let step = if cfg!(miri) { 71 } else { 1 };
    for (index, order) in orders.iter().enumerate().step_by(step) {
        let (fake, mut objects) = everything(PROFILES[index % 2]);
        for place in order {
            drop(objects[*place].take());
        }
        fake.resume();
        fake.assert_clean();
    }
}

#[test]
#[cfg_attr(miri, ignore = "opens a file")]
fn a_domain_belongs_to_its_file() {
    let fake = with_xrc(PROFILES[0]);
    let context = open(&fake);
    let file = File::open("/proc/self/exe").expect("a file");
    let by = |how| context.open_xrcd_by_file(&file, how);
    by(XrcdOpen::Existing).expect_err("none is there yet");
    let here = by(XrcdOpen::CreateNew).expect("new");
    by(XrcdOpen::CreateNew).expect_err("there is one");
    let there = by(XrcdOpen::Existing).expect("the same");
    assert_eq!(fake.live().xrcds, 1);
    // A queue by one opening, the receiving half by the other.
    let mut store = Store::new(&context, &here);
    let mut receiver = there.create_xrc_recv_qp().expect("receiving half");
    let pd = context.alloc_pd().expect("protection domain");
    let mut cq = context
        .create_cq(CqOptions::default())
        .expect("completion queue");
    let mut sender = pd.create_xrc_send_qp(&cq, small()).expect("sending half");
    connect(&mut sender, &mut receiver, &path());
    store.receives(1);
    sender
        .post_send(wr::send(wr::Inline(b"over")).for_srq(store.number))
        .expect("send");
    assert_eq!(store.texts(), [(0, b"over".to_vec())]);
    sender
        .retire(cq.poll().expect("poll").next().expect("sent"))
        .expect("in flight")
        .ok()
        .expect("success");
    drop((sender, cq, pd, there, receiver, store, here, context));
    fake.assert_clean();
}

#[test]
fn a_receiving_half_can_be_opened_by_its_number_and_lives_as_long_as_the_last_who_did() {
    let setup = Setup::new(PROFILES[0]);
    let number = setup.receiver.qp_num();
    let mut again = setup.xrcd.open_xrc_recv_qp(number).expect("the same");
    assert_eq!(
        (again.qp_num(), again.state().expect("state")),
        (number, QpState::RTS)
    );
    assert_ne!(again.id(), setup.receiver.id());
    let other = setup.context.open_xrcd().expect("XRC domain");
    assert_eq!(
        other
            .open_xrc_recv_qp(number)
            .expect_err("of another domain")
            .kind(),
        ErrorKind::InvalidInput
    );
    let Setup {
        mut sender,
        receiver,
        mut stores,
        send_cq,
        pool,
        xrcd,
        context,
        fake,
    } = setup;
    receiver.destroy().expect("closed");
    stores[0].receives(1);
    sender
        .post_send(wr::send(wr::Inline(b"still")).for_srq(stores[0].number))
        .expect("send");
    assert_eq!(stores[0].texts(), [(0, b"still".to_vec())]);
    again.to_error().expect("ERR state");
    again.modify(&QpChange::to(QpState::RESET)).expect("RESET");
    drop((again, sender, stores, send_cq, pool, xrcd, other, context));
    fake.assert_clean();
}

#[test]
fn parts_of_different_openings_do_not_fit() {
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
        .expect_err("a queue of another opening");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    let error = pd
        .create_xrc_send_qp(&cq, small())
        .expect_err("a queue of another opening");
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    drop((xrcd, pd, cq, one, two));
    fake.assert_clean();
}

#[test]
fn a_device_without_xrc_says_so() {
    for profile in PROFILES {
        let fake = Fake::new(profile);
        let context = open(&fake);
        assert!(context.open_xrcd().expect_err("no XRC").is_unsupported());
        let (pd, cq) = (
            context.alloc_pd().expect("protection domain"),
            context
                .create_cq(CqOptions::default())
                .expect("completion queue"),
        );
        assert!(
            pd.create_xrc_send_qp(&cq, small())
                .expect_err("no XRC")
                .is_unsupported()
        );
        drop((pd, cq, context));
        fake.assert_clean();
    }
}

#[test]
fn a_peer_reaches_shared_memory_through_the_queue_as_long_as_it_exists() {
    let setup = Setup::new(PROFILES[0]);
    let region = setup.stores[1]
        .pd
        .shared(8, AccessFlags::REMOTE_WRITE)
        .expect("region");
    let region = region
        .try_into_buf()
        .expect_err("the queue is there")
        .into_region();
    let Setup {
        receiver,
        stores,
        fake,
        sender,
        send_cq,
        pool,
        xrcd,
        context,
    } = setup;
    drop(receiver);
    let region = region
        .try_into_buf()
        .expect_err("the queue is there")
        .into_region();
    drop(stores);
    drop(region.try_into_buf().expect("no peer can reach it"));
    drop((sender, send_cq, pool, xrcd, context));
    assert_eq!(fake.live(), Live::default());
}
