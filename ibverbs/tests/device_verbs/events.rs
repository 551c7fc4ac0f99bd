//! Asynchronous events of ports, completion queues, queue pairs and shared receive queues.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use ibverbs::{
    CompletionQueue, Context, CqOptions, PortState, ProtectionDomain, QpOptions, QueuePair, Rc,
    SrqOptions,
    event::{AsyncEvent, AsyncEvents, EventSource, EventType},
    wr,
};
use test_support::lab::LinkDown;

use crate::lab::{self, connect, devices, devices_with, is_efa, is_iwarp, path, roce_with, verb};

/// Time within which an expected event must arrive.
const LONG: Duration = Duration::from_secs(10);
/// Time without an event after which none is expected any more.
const SHORT: Duration = Duration::from_millis(300);

/// Reads events until none arrives within [`SHORT`].
fn drain(events: &AsyncEvents) -> Vec<AsyncEvent> {
    let mut all = Vec::new();
    while let Some(event) = events.wait(Some(SHORT)).expect("wait") {
        all.push(event);
    }
    all
}

/// Returns `true` if the descriptor of `events` is readable.
#[allow(unsafe_code)]
fn readable(events: &AsyncEvents) -> bool {
    let mut fd = libc::pollfd {
        fd: events.as_fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd of a descriptor that `events` keeps open.
    let count = unsafe { libc::poll(&raw mut fd, 1, 0) };
    count == 1 && fd.revents == libc::POLLIN
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn link_changes_raise_port_events() {
    for context in devices() {
        if is_efa(&context) {
            println!("unsupported: {} port events", context.device_name());
            continue;
        }
        println!("device: {}", context.device_name());
        let gids = context.gids(1).expect("GID table").len();
        let events = context.async_events().expect("events");
        drain(&events);
        let down = LinkDown::new(&context.netdev(1).expect("network interface of the port"));
        let seen = drain(&events);
        println!("{} down: {seen:?}", context.device_name());
        assert!(
            seen.iter()
                .any(|e| e.event_type == EventType::PORT_ERR && e.source == EventSource::Port(1))
        );
        assert_ne!(
            context.query_port(1).expect("port").state,
            PortState::ACTIVE
        );
        drop(down);
        let seen = drain(&events);
        println!("{} up: {seen:?}", context.device_name());
        assert!(seen.iter().any(|e| e.event_type == EventType::PORT_ACTIVE && e.source == EventSource::Port(1)));
        let deadline = Instant::now() + LONG;
        while context.query_port(1).expect("port").state != PortState::ACTIVE
            || context.gids(1).expect("GID table").len() < gids
        {
            assert!(
                Instant::now() < deadline,
                "{} did not get its addresses back",
                context.device_name()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        if !is_iwarp(&context) {
            // Duplicate address detection delays the link-local GID.
            drain(&events);
        }
    }
}

/// Overflows a completion queue: creates a queue pair with more receives than its completion queue
/// holds, and flushes them.
fn overflow_cq(context: &Context) -> (ProtectionDomain, CompletionQueue, QueuePair<Rc>) {
    let pd = context.alloc_pd().expect("protection domain");
    let cq = context
        .create_cq(CqOptions::new().depth(2))
        .expect("completion queue");
    let send_cq = lab::cq(context);
    let options = QpOptions::new().max_recv_wr(64);
    let mut qp = pd
        .create_qp::<Rc>(&send_cq, &cq, options)
        .expect("queue pair");
    assert!(cq.depth() < 32, "depth 2 was rounded up to {}", cq.depth());
    qp.init(&path(context)).expect("INIT state");
    for _ in 0..64 {
        qp.post_recv(wr::recv(pd.buf(8).expect("buffer")))
            .expect("receive");
    }
    qp.to_error().expect("ERR state");
    (pd, cq, qp)
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn overflow_event_names_the_completion_queue() {
    for context in devices_with(&[verb::RC]) {
        let events = context.async_events().expect("events");
        drain(&events);
        let (_pd, cq, _qp) = overflow_cq(&context);
        let event = events.wait(Some(LONG)).expect("wait").expect("an event");
        assert_eq!(event.event_type, EventType::CQ_ERR);
        assert_eq!(event.source, EventSource::CompletionQueue(cq.id()));
        println!(
            "{}: {event}, and {} more",
            context.device_name(),
            drain(&events).len()
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn destroy_does_not_wait_for_events() {
    for context in devices_with(&[verb::RC]) {
        let events = context.async_events().expect("events");
        drain(&events);
        let (pd, cq, qp) = overflow_cq(&context);
        let (event, id) = (
            events.wait(Some(LONG)).expect("wait").expect("an event"),
            cq.id(),
        );
        let started = Instant::now();
        qp.destroy().expect("destroyed");
        drop((cq, pd));
        assert!(started.elapsed() < LONG / 2, "took {:?}", started.elapsed());
        assert_eq!(
            event.source,
            EventSource::CompletionQueue(id),
            "the event still has the identity of the destroyed queue"
        );
        assert_eq!(
            drain(&events),
            [],
            "events of a destroyed queue are not delivered"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn events_can_be_read_while_queues_are_destroyed() {
    for context in devices_with(&[verb::RC]) {
        let events = context.async_events().expect("events");
        drain(&events);
        let events_of_reader = events.clone();
        let reader = std::thread::spawn(move || {
            let (mut count, deadline) = (0, Instant::now() + Duration::from_secs(2));
            while Instant::now() < deadline {
                count += usize::from(events_of_reader.wait(Some(SHORT)).expect("wait").is_some());
            }
            count
        });
        for _ in 0..20 {
            drop(overflow_cq(&context));
        }
        println!(
            "{}: {} events read at the same time",
            context.device_name(),
            reader.join().expect("reader")
        );
        assert_eq!(ibverbs::leaked_objects(), 0);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn wait_times_out_and_each_event_goes_to_one_handle() {
    for context in devices_with(&[verb::RC]) {
        let (one, two) = (
            context.async_events().expect("events"),
            context.async_events().expect("events"),
        );
        drain(&one);
        let started = Instant::now();
        assert_eq!(one.wait(Some(SHORT)).expect("wait"), None);
        assert!(started.elapsed() >= SHORT);
        assert_eq!(two.try_next().expect("try"), None);
        assert!(!readable(&one));
        let overflowed = [overflow_cq(&context), overflow_cq(&context)];
        let deadline = Instant::now() + LONG;
        while !(readable(&one) && readable(&two)) {
            assert!(
                Instant::now() < deadline,
                "both handles must become readable"
            );
        }
        let received = [&one, &two].map(|events| {
            events
                .wait(Some(LONG))
                .expect("wait")
                .expect("an event")
                .source
        });
        let expected = [0, 1].map(|index| EventSource::CompletionQueue(overflowed[index].1.id()));
        assert!(
            received == expected || received == [expected[1], expected[0]],
            "{received:?}"
        );
        assert_eq!(
            (one.try_next().expect("try"), two.try_next().expect("try")),
            (None, None)
        );
        let other = context
            .device()
            .open()
            .expect("second context")
            .async_events()
            .expect("events");
        assert_eq!(
            other.try_next().expect("try"),
            None,
            "events of a queue go only to its own context"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn srq_limit_and_last_wqe_events_name_their_queues() {
    for context in roce_with(&[verb::RC, verb::SRQ]) {
        let events = context.async_events().expect("events");
        drain(&events);
        let pd = context.alloc_pd().expect("protection domain");
        let mut cq = lab::cq(&context);
        let mut srq = pd
            .create_srq(SrqOptions::default())
            .expect("shared receive queue");
        let mut sender = lab::qp::<Rc>(&pd, &cq);
        let mut receiver = pd
            .create_qp_with_srq::<Rc>(&cq, &cq, &srq, QpOptions::default())
            .expect("receiver");
        connect(&mut sender, &mut receiver, &path(&context));
        for _ in 0..4 {
            srq.post_recv(wr::recv(pd.buf(8).expect("buffer")))
                .expect("receive");
        }
        srq.set_limit(4).expect("limit");
        sender.post_send(wr::send(wr::Empty)).expect("send");
        let event = events.wait(Some(LONG)).expect("wait").expect("an event");
        assert_eq!(event.event_type, EventType::SRQ_LIMIT_REACHED);
        assert_eq!(event.source, EventSource::SharedReceiveQueue(srq.id()));
        receiver.to_error().expect("ERR state");
        let seen = drain(&events);
        let source = EventSource::QueuePair {
            queue: receiver.id(),
            qp_num: receiver.qp_num(),
        };
        // rxe raises the event again when its responder runs again (docs/drivers.md).
        assert!(!seen.is_empty(), "no event");
        for event in &seen {
            assert_eq!(
                (event.event_type, &event.source),
                (EventType::QP_LAST_WQE_REACHED, &source)
            );
        }
        let deadline = Instant::now() + LONG;
        let mut retired = 0;
        while retired < 2 && Instant::now() < deadline {
            for completion in cq.poll().expect("poll") {
                retired += 1;
                if completion.queue() == srq.id() {
                    srq.retire(completion).expect("in flight");
                } else {
                    sender.retire(completion).expect("in flight");
                }
            }
        }
    }
}
