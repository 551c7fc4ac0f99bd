//! Queue pairs that the application moves itself, on real drivers: established by hand, or by what
//! the device heard.

mod lab;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{
    AccessFlags, CompletionQueue, ConnectedDuplexTransport, ErrorKind, ProtectionDomain, QpOptions,
    QpState, QueuePair, Rc, Uc, event::EventType, qp::QpChange, wr,
};
use lab::{End, PATIENCE, Place, leaves_nothing, one_place_each};
use rdmacm::active::ConnectResponse;
use rdmacm::connection::ConnectedId;
use rdmacm::{CmEventType, ConnectParams, ConnectRequest, InProgress, Resolver, Route};

/// What a transport takes of the steps that the connection manager gives, which are those of RC.
trait ByHand: ConnectedDuplexTransport {
    fn fitting(change: QpChange) -> QpChange;
}

impl ByHand for Rc {
    fn fitting(change: QpChange) -> QpChange {
        change
    }
}

impl ByHand for Uc {
    fn fitting(change: QpChange) -> QpChange {
        QpChange {
            max_dest_rd_atomic: None,
            min_rnr_timer: None,
            timeout: None,
            retry_cnt: None,
            rnr_retry: None,
            max_rd_atomic: None,
            ..change
        }
    }
}

/// A queue pair and what it stands on.
struct Own<T: ByHand> {
    qp: QueuePair<T>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
}

impl<T: ByHand> Own<T> {
    fn new(place: &Place) -> Self {
        let End { pd, cq } = place.end();
        let options = QpOptions {
            max_send_wr: 4,
            max_recv_wr: 4,
            ..QpOptions::default()
        };
        Self {
            qp: pd.create_qp::<T>(&cq, &cq, options).expect("queue pair"),
            cq,
            pd,
        }
    }

    fn step(&mut self, change: ibverbs::Result<QpChange>) {
        self.qp
            .modify(&T::fitting(change.expect("attributes")))
            .expect("modify");
    }

    /// To INIT, with one receive.
    fn begin(&mut self, change: ibverbs::Result<QpChange>) {
        let access = Some(AccessFlags::empty());
        self.step(change.map(|change| QpChange { access, ..change }));
        self.qp
            .post_recv(wr::recv(self.pd.buf(64).expect("buffer")))
            .expect("receive");
    }

    fn send(&mut self, text: &[u8]) {
        let mut message = self.pd.buf(text.len()).expect("buffer");
        message.copy_from_slice(text);
        self.qp
            .post_send(wr::send(message).unsignaled())
            .expect("send");
    }

    fn receive(&mut self) -> Vec<u8> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(completion) = self.cq.poll().expect("poll").next() {
                let retired = self.qp.retire(completion).expect("mine");
                retired.ok().expect("received");
                return retired.into_buf().expect("posted with one").to_vec();
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("nothing came");
    }
}

fn request<T: ByHand>(own: &mut Own<T>, route: Route) -> ConnectResponse {
    own.begin(route.qp_change(QpState::INIT));
    let answer = route
        .request(&own.qp, &ConnectParams::default())
        .expect("ask")
        .wait(Some(PATIENCE))
        .expect("answer");
    own.step(answer.qp_change(QpState::RTR));
    own.step(answer.qp_change(QpState::RTS));
    answer
}

fn prepare<T: ByHand>(own: &mut Own<T>, request: &ConnectRequest) {
    own.begin(request.qp_change(QpState::INIT));
    own.step(request.qp_change(QpState::RTR));
    own.step(request.qp_change(QpState::RTS));
}

fn both_ways<T: ByHand>(place: &Place) {
    let listener = place.listen();
    let address = listener.local_addr();
    thread::scope(|scope| {
        scope.spawn(|| {
            let request = listener
                .accept(Some(PATIENCE))
                .expect("accept")
                .expect("in time");
            let mut own = Own::<T>::new(place);
            prepare(&mut own, &request);
            let awaiting = request
                .accept_external(&own.qp, &ConnectParams::default())
                .expect("accept");
            let mut link: ConnectedId = awaiting.wait(Some(PATIENCE)).expect("established");
            assert_eq!(own.receive(), b"by hand");
            own.send(b"and back");
            let event = link
                .wait_event(Some(PATIENCE))
                .expect("wait")
                .expect("in time");
            assert_eq!(event.event_type, CmEventType::DISCONNECTED);
            assert!(link.is_disconnected());
        });
        let mut own = Own::<T>::new(place);
        let answer = request(
            &mut own,
            Resolver::new(address)
                .timeout(PATIENCE)
                .resolve()
                .expect("resolve"),
        );
        let mut link = answer.establish().expect("establish");
        assert_eq!(
            (link.device_name(), link.peer_addr()),
            (place.name(), address)
        );
        // It stands already.
        let error = link.notify(EventType::COMM_EST).expect_err("once");
        assert_eq!(error.verb(), "rdma_notify", "{error}");
        own.send(b"by hand");
        assert_eq!(own.receive(), b"and back");
        link.disconnect().expect("disconnect");
        link.disconnect().expect("again");
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_queue_pair_moved_by_the_application_is_connected_over_rc_and_uc() {
    for place in one_place_each().iter().filter(|place| !place.is_iwarp()) {
        leaves_nothing(place, || both_ways::<Rc>(place));
        leaves_nothing(place, || both_ways::<Uc>(place));
    }
}

/// A peer that speaks, and keeps silent towards the connection manager.
fn speaks_unestablished(place: &Place, address: SocketAddr) -> (Own<Rc>, ConnectResponse) {
    let mut own = Own::<Rc>::new(place);
    let answer = request(
        &mut own,
        Resolver::new(address)
            .timeout(PATIENCE)
            .resolve()
            .expect("resolve"),
    );
    own.send(b"by hand");
    (own, answer)
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_message_that_was_heard_establishes_what_the_peer_did_not() {
    for place in one_place_each().iter().filter(|place| !place.is_iwarp()) {
        leaves_nothing(place, || {
            let listener = place.listen();
            let address = listener.local_addr();
            let next = || {
                listener
                    .accept(Some(PATIENCE))
                    .expect("accept")
                    .expect("in time")
            };
            thread::scope(|scope| {
                let asker = scope.spawn(|| speaks_unestablished(place, address));
                let request = next();
                let mut own = Own::<Rc>::new(place);
                prepare(&mut own, &request);
                let mut awaiting = request
                    .accept_external(&own.qp, &ConnectParams::default())
                    .expect("accept");
                assert_eq!(own.receive(), b"by hand");
                assert!(
                    awaiting.try_finish().expect("step").is_none(),
                    "the peer has not said so"
                );
                awaiting.notify(EventType::COMM_EST).expect("notify");
                let link = awaiting.wait(Some(PATIENCE)).expect("established");
                assert!(!link.is_disconnected());
                drop(asker.join().expect("asker"));
            });
            // The same where the connection manager moves the queue pair.
            thread::scope(|scope| {
                let asker = scope.spawn(|| speaks_unestablished(place, address));
                let mut end = place.end();
                let mut pending = next().with_qp(end.qp()).expect("INIT");
                end.receive_on(pending.qp_mut());
                let mut accepting = pending.start(&ConnectParams::default()).expect("accept");
                let deadline = Instant::now() + PATIENCE;
                while end.cq.poll().expect("poll").next().is_none() {
                    assert!(Instant::now() < deadline, "nothing came");
                    thread::sleep(Duration::from_millis(1));
                }
                assert!(
                    accepting.try_finish().expect("step").is_none(),
                    "the peer has not said so"
                );
                accepting.notify(EventType::COMM_EST).expect("notify");
                drop(accepting.wait(Some(PATIENCE)).expect("established"));
                drop(asker.join().expect("asker"));
            });
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn an_answer_is_refused_or_dropped_and_the_other_side_is_told() {
    for place in one_place_each().iter().filter(|place| !place.is_iwarp()) {
        leaves_nothing(place, || {
            let listener = place.listen();
            let address = listener.local_addr();
            for refuse in [true, false] {
                thread::scope(|scope| {
                    scope.spawn(|| {
                        let mut own = Own::<Rc>::new(place);
                        let route = Resolver::new(address)
                            .timeout(PATIENCE)
                            .resolve()
                            .expect("resolve");
                        own.begin(route.qp_change(QpState::INIT));
                        let asking = route
                            .request(&own.qp, &ConnectParams::default())
                            .expect("ask");
                        let answer = asking.wait(Some(PATIENCE)).expect("answer");
                        if refuse {
                            answer.reject(b"changed my mind").expect("reject");
                        } else {
                            drop(answer);
                        }
                    });
                    let request = listener
                        .accept(Some(PATIENCE))
                        .expect("accept")
                        .expect("in time");
                    let mut own = Own::<Rc>::new(place);
                    prepare(&mut own, &request);
                    let awaiting = request
                        .accept_external(&own.qp, &ConnectParams::default())
                        .expect("accept");
                    let error = awaiting
                        .wait(Some(PATIENCE))
                        .map(drop)
                        .expect_err("not established");
                    assert_eq!(error.error().kind(), ErrorKind::Disconnected, "{error}");
                    assert!(
                        !refuse || error.to_string().contains("changed my mind"),
                        "{error}"
                    );
                });
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn on_iwarp_the_kernel_moves_the_queue_pair_and_that_is_told() {
    for place in one_place_each().iter().filter(|place| place.is_iwarp()) {
        leaves_nothing(place, || {
            let listener = place.listen();
            let end = place.end();
            let qp = end.qp();
            let route = Resolver::new(listener.local_addr())
                .timeout(PATIENCE)
                .resolve()
                .expect("resolve");
            let error = route
                .request(&qp, &ConnectParams::default())
                .map(drop)
                .expect_err("not on iWARP");
            assert_eq!(error.error().kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains(place.name()), "{error}");
        });
    }
}
