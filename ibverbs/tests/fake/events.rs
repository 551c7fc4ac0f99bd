//! Asynchronous events: their source, their delivery to one reader, and objects that are destroyed
//! before their events are read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::fixture::{Fake, PROFILES, connect, open, pairs, small};
use fake_provider::Verb;
use ibverbs::{
    CqOptions, Rc, SrqOptions,
    event::{AsyncEvents, EventSource, EventType},
    wr,
};

/// Reads all pending events.
fn read_all(events: &AsyncEvents) -> Vec<(EventType, EventSource)> {
    std::iter::from_fn(|| events.try_next().expect("try"))
        .map(|event| (event.event_type, event.source))
        .collect()
}

#[test]
fn an_event_names_its_object() {
    for pair in pairs(PROFILES) {
        let events = pair.context.async_events().expect("events");
        assert_eq!(read_all(&events), []);
        let srq = pair
            .pd
            .create_srq(SrqOptions::new().max_wr(3))
            .expect("shared receive queue");
        pair.fake.raise(EventType::CQ_ERR.0);
        assert_eq!(
            read_all(&events),
            [(
                EventType::CQ_ERR,
                EventSource::CompletionQueue(pair.cq.id())
            )]
        );
        let source = |qp: &ibverbs::QueuePair<Rc>| EventSource::QueuePair {
            queue: qp.id(),
            qp_num: qp.qp_num(),
        };
        pair.fake.raise(EventType::QP_FATAL.0);
        let both = [&pair.a, &pair.b].map(|qp| (EventType::QP_FATAL, source(qp)));
        assert_eq!(read_all(&events), both);
        pair.fake.raise(EventType::SRQ_ERR.0);
        assert_eq!(
            read_all(&events),
            [(
                EventType::SRQ_ERR,
                EventSource::SharedReceiveQueue(srq.id())
            )]
        );
        pair.fake.raise(EventType::PORT_ERR.0);
        pair.fake.raise(EventType::DEVICE_FATAL.0);
        pair.fake.raise(4711);
        assert_eq!(
            read_all(&events),
            [
                (EventType::PORT_ERR, EventSource::Port(1)),
                (EventType::DEVICE_FATAL, EventSource::Device),
                (EventType(4711), EventSource::Unknown(1)),
            ]
        );
    }
}

#[test]
fn destroying_a_queue_discards_its_unread_events() {
    for pair in pairs(PROFILES) {
        let events = pair.context.async_events().expect("events");
        let srq = pair
            .pd
            .create_srq(SrqOptions::new().max_wr(3))
            .expect("shared receive queue");
        for event_type in [
            EventType::SRQ_ERR,
            EventType::CQ_ERR,
            EventType::QP_FATAL,
            EventType::QP_ACCESS_ERR,
        ] {
            pair.fake.raise(event_type.0);
        }
        pair.fake.raise(EventType::PORT_ACTIVE.0);
        let source_a = EventSource::QueuePair {
            queue: pair.a.id(),
            qp_num: pair.a.qp_num(),
        };
        drop((pair.b, srq));
        let first = events.try_next().expect("try").expect("an event");
        assert_eq!(
            (first.event_type, first.source),
            (
                EventType::CQ_ERR,
                EventSource::CompletionQueue(pair.cq.id())
            )
        );
        assert_eq!(
            events.try_next().expect("try").expect("an event").source,
            source_a
        );
        drop((pair.a, pair.cq));
        assert_eq!(
            read_all(&events),
            [(EventType::PORT_ACTIVE, EventSource::Port(1))]
        );
        drop((pair.pool, pair.pd, pair.context));
        assert_eq!(
            pair.fake.live().contexts,
            1,
            "an event reader keeps the device open"
        );
    }
}

#[test]
fn an_event_outlives_its_queue() {
    for pair in pairs(PROFILES) {
        let events = pair.context.async_events().expect("events");
        pair.fake.raise(EventType::QP_REQ_ERR.0);
        let first = events.try_next().expect("try").expect("an event");
        let expected = EventSource::QueuePair {
            queue: pair.a.id(),
            qp_num: pair.a.qp_num(),
        };
        drop((events, pair)); // One event is unread.
        assert_eq!(first.source, expected);
    }
}

#[test]
fn queues_are_destroyed_while_threads_read_their_events() {
    let fake = Fake::extended();
    let context = open(&fake);
    let pd = context.alloc_pd().expect("protection domain");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let events = context.async_events().expect("events");
                while !done.load(Ordering::Acquire) {
                    if let Some(event) = events.try_next().expect("try") {
                        assert_eq!(
                            event.to_string().split(':').next(),
                            Some(event.event_type.name().expect("known"))
                        );
                    }
                    thread::yield_now();
                }
            });
        }
        for _ in 0..if cfg!(miri) { 4 } else { 200 } {
            let cq = context
                .create_cq(CqOptions::new().depth(7))
                .expect("completion queue");
            let qp = pd.create_qp::<Rc>(&cq, &cq, small()).expect("queue pair");
            fake.raise(EventType::QP_FATAL.0);
            fake.raise(EventType::CQ_ERR.0);
            thread::yield_now();
            drop((qp, cq));
        }
        done.store(true, Ordering::Release);
    });
}

#[test]
fn an_event_goes_to_one_reader_of_its_context() {
    let fake = Fake::extended();
    let (context, other) = (open(&fake), open(&fake));
    let (one, two) = (
        context.async_events().expect("events"),
        context.async_events().expect("events"),
    );
    let other_events = other.async_events().expect("events");
    let _cq = context
        .create_cq(CqOptions::default())
        .expect("completion queue");
    fake.raise(EventType::CQ_ERR.0);
    fake.raise(EventType::PORT_ERR.0);
    assert_eq!(
        one.try_next().expect("try").expect("an event").event_type,
        EventType::CQ_ERR
    );
    assert_eq!(
        read_all(&two),
        [(EventType::PORT_ERR, EventSource::Port(1))]
    );
    assert_eq!(read_all(&one), []);
    assert_eq!(
        read_all(&other_events),
        [(EventType::PORT_ERR, EventSource::Port(1))]
    );
    fake.fail_next(Verb::GetAsyncEvent, libc::EIO);
    let error = one.try_next().expect_err("EIO");
    assert_eq!(
        (error.call(), error.errno().map(|errno| errno.0)),
        ("ibv_get_async_event", Some(libc::EIO))
    );
    fake.fail_next(Verb::GetAsyncEvent, libc::EINTR);
    assert_eq!(one.try_next().expect("EINTR is not an error"), None);
}

#[test]
fn srq_limit_and_last_wqe_events_are_reported_once() {
    for mut pair in pairs(PROFILES) {
        let events = pair.context.async_events().expect("events");
        let mut srq = pair
            .pd
            .create_srq(SrqOptions::new().max_wr(7))
            .expect("shared receive queue");
        pair.b = pair
            .pd
            .create_qp_with_srq::<Rc>(&pair.cq, &pair.cq, &srq, small())
            .expect("b");
        pair.a = pair
            .pd
            .create_qp::<Rc>(&pair.cq, &pair.cq, small())
            .expect("a");
        connect(&mut pair.a, &mut pair.b);
        for _ in 0..4 {
            srq.post_recv(wr::recv(pair.pool.take().expect("a free buffer")))
                .expect("receive");
        }
        srq.set_limit(3).expect("limit");
        for expected in [&[][..], &[EventType::SRQ_LIMIT_REACHED][..], &[]] {
            pair.a.post_send(wr::send(wr::Empty)).expect("send");
            let seen: Vec<_> = read_all(&events)
                .into_iter()
                .map(|(event_type, _)| event_type)
                .collect();
            assert_eq!(seen, expected);
        }
        pair.b.to_error().expect("ERR state");
        pair.b.to_error().expect("second call");
        let source = EventSource::QueuePair {
            queue: pair.b.id(),
            qp_num: pair.b.qp_num(),
        };
        assert_eq!(
            read_all(&events),
            [(EventType::QP_LAST_WQE_REACHED, source)]
        );
        for completion in pair.cq.poll().expect("poll") {
            if completion.queue() == srq.id() {
                drop(srq.retire(completion).expect("in flight").into_buf());
            } else {
                pair.a
                    .retire(completion)
                    .expect("in flight")
                    .check()
                    .expect("sent");
            }
        }
    }
}
