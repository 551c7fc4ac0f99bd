//! Queue pairs that the application moves through their states, on real drivers: established by the
//! application, or by the peer's first message.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{
    AccessFlags, CompletionQueue, ConnectedDuplexTransport, ErrorKind, ProtectionDomain, QpOptions,
    QpState, QueuePair, Rc, Uc, event::EventType, qp::QpChange, wr,
};
use rdmacm::active::ConnectResponse;
use rdmacm::connection::ConnectedId;
use rdmacm::{CmEventType, ConnectParams, ConnectRequest, InProgress, Resolver, Route};

use crate::lab::{self, Endpoint, Resources, TIMEOUT, assert_no_leaks, one_endpoint_each};

/// Adapts the state changes of the connection manager, which are for RC, to a transport.
trait ExternalTransport: ConnectedDuplexTransport {
    fn adapt(change: QpChange) -> QpChange;
}

impl ExternalTransport for Rc {
    fn adapt(change: QpChange) -> QpChange {
        change
    }
}

impl ExternalTransport for Uc {
    fn adapt(mut change: QpChange) -> QpChange {
        change.max_dest_rd_atomic = None;
        change.min_rnr_timer = None;
        change.timeout = None;
        change.retry_cnt = None;
        change.rnr_retry = None;
        change.max_rd_atomic = None;
        change
    }
}

/// A queue pair of the application and its objects.
struct ExternalQp<T: ExternalTransport> {
    qp: QueuePair<T>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
}

impl<T: ExternalTransport> ExternalQp<T> {
    fn new(endpoint: &Endpoint) -> Self {
        let Resources { pd, cq } = endpoint.resources();
        let options = QpOptions::new().max_send_wr(4).max_recv_wr(4);
        Self {
            qp: pd.create_qp::<T>(&cq, &cq, options).expect("queue pair"),
            cq,
            pd,
        }
    }

    fn modify(&mut self, change: ibverbs::Result<QpChange>) {
        self.qp
            .modify(&T::adapt(change.expect("attributes")))
            .expect("modify");
    }

    /// Moves the queue pair to INIT and posts one receive.
    fn init(&mut self, change: ibverbs::Result<QpChange>) {
        self.modify(change.map(|change| change.access(AccessFlags::empty())));
        self.qp
            .post_recv(wr::recv(self.pd.buf(64).expect("buffer")))
            .expect("receive");
    }

    fn send(&mut self, text: &[u8]) {
        let mut message = self.pd.buf(text.len()).expect("buffer");
        message.copy_from_slice(text);
        self.qp
            .post_send(wr::send(message).signaled(false))
            .expect("send");
    }

    fn receive(&mut self) -> Vec<u8> {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if let Some(completion) = self.cq.poll().expect("poll").next() {
                let retired = self
                    .qp
                    .retire(completion)
                    .expect("a completion of this queue pair");
                retired.check().expect("received");
                return retired.into_buf().expect("the posted buffer").to_vec();
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("no message");
    }
}

fn request<T: ExternalTransport>(external: &mut ExternalQp<T>, route: Route) -> ConnectResponse {
    external.init(route.qp_change(QpState::INIT));
    let response = route
        .request(&external.qp, &ConnectParams::default())
        .expect("request")
        .wait(Some(TIMEOUT))
        .expect("response");
    external.modify(response.qp_change(QpState::RTR));
    external.modify(response.qp_change(QpState::RTS));
    response
}

fn prepare<T: ExternalTransport>(external: &mut ExternalQp<T>, request: &ConnectRequest) {
    external.init(request.qp_change(QpState::INIT));
    external.modify(request.qp_change(QpState::RTR));
    external.modify(request.qp_change(QpState::RTS));
}

fn exchange<T: ExternalTransport>(endpoint: &Endpoint) {
    let listener = endpoint.listen();
    let address = listener.local_addr();
    thread::scope(|scope| {
        scope.spawn(|| {
            let request = lab::request(&listener);
            let mut external = ExternalQp::<T>::new(endpoint);
            prepare(&mut external, &request);
            let pending = request
                .accept_external(&external.qp, &ConnectParams::default())
                .expect("accept");
            let mut id: ConnectedId = pending.wait(Some(TIMEOUT)).expect("established");
            assert_eq!(external.receive(), b"hello");
            external.send(b"reply");
            let event = id
                .wait_event(Some(TIMEOUT))
                .expect("wait")
                .expect("an event or request in time");
            assert_eq!(event.event_type, CmEventType::DISCONNECTED);
            assert!(id.is_disconnected());
        });
        let mut external = ExternalQp::<T>::new(endpoint);
        let response = request(
            &mut external,
            Resolver::new(address)
                .timeout(TIMEOUT)
                .resolve()
                .expect("resolve"),
        );
        let mut id = response.establish().expect("establish");
        assert_eq!(
            (id.device_name(), id.peer_addr()),
            (endpoint.name(), address)
        );
        // The connection is already established.
        let error = id
            .notify(EventType::COMM_EST)
            .expect_err("already established");
        assert_eq!(error.call(), "rdma_notify", "{error}");
        external.send(b"hello");
        assert_eq!(external.receive(), b"reply");
        id.disconnect().expect("disconnect");
        id.disconnect().expect("again");
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn external_queue_pairs_connect_with_rc_and_uc() {
    for endpoint in one_endpoint_each()
        .iter()
        .filter(|endpoint| !endpoint.is_iwarp())
    {
        assert_no_leaks(endpoint, || exchange::<Rc>(endpoint));
        assert_no_leaks(endpoint, || exchange::<Uc>(endpoint));
    }
}

/// Connects and sends a message without completing the handshake.
fn send_without_establishing(
    endpoint: &Endpoint,
    address: SocketAddr,
) -> (ExternalQp<Rc>, ConnectResponse) {
    let mut external = ExternalQp::<Rc>::new(endpoint);
    let response = request(
        &mut external,
        Resolver::new(address)
            .timeout(TIMEOUT)
            .resolve()
            .expect("resolve"),
    );
    external.send(b"hello");
    (external, response)
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_received_message_establishes_the_connection() {
    for endpoint in one_endpoint_each()
        .iter()
        .filter(|endpoint| !endpoint.is_iwarp())
    {
        assert_no_leaks(endpoint, || {
            let listener = endpoint.listen();
            let address = listener.local_addr();
            let next = || lab::request(&listener);
            thread::scope(|scope| {
                let active = scope.spawn(|| send_without_establishing(endpoint, address));
                let request = next();
                let mut external = ExternalQp::<Rc>::new(endpoint);
                prepare(&mut external, &request);
                let mut pending = request
                    .accept_external(&external.qp, &ConnectParams::default())
                    .expect("accept");
                assert_eq!(external.receive(), b"hello");
                assert!(
                    pending.try_finish().expect("step").is_none(),
                    "the peer has not established it"
                );
                pending.notify(EventType::COMM_EST).expect("notify");
                let id = pending.wait(Some(TIMEOUT)).expect("established");
                assert!(!id.is_disconnected());
                drop(active.join().expect("active"));
            });
            // The same with a queue pair that the connection manager moves.
            thread::scope(|scope| {
                let active = scope.spawn(|| send_without_establishing(endpoint, address));
                let mut resources = endpoint.resources();
                let mut ready_request = next().with_qp(resources.qp()).expect("INIT");
                resources.receive_on(ready_request.qp_mut());
                let mut accepting = ready_request
                    .start(&ConnectParams::default())
                    .expect("accept");
                let deadline = Instant::now() + TIMEOUT;
                while resources.cq.poll().expect("poll").next().is_none() {
                    assert!(Instant::now() < deadline, "no message");
                    thread::sleep(Duration::from_millis(1));
                }
                assert!(
                    accepting.try_finish().expect("step").is_none(),
                    "the peer has not established it"
                );
                accepting.notify(EventType::COMM_EST).expect("notify");
                drop(accepting.wait(Some(TIMEOUT)).expect("established"));
                drop(active.join().expect("active"));
            });
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_passive_side_learns_of_a_rejected_response() {
    for endpoint in one_endpoint_each()
        .iter()
        .filter(|endpoint| !endpoint.is_iwarp())
    {
        assert_no_leaks(endpoint, || {
            let listener = endpoint.listen();
            let address = listener.local_addr();
            for reject in [true, false] {
                thread::scope(|scope| {
                    scope.spawn(|| {
                        let mut external = ExternalQp::<Rc>::new(endpoint);
                        let route = Resolver::new(address)
                            .timeout(TIMEOUT)
                            .resolve()
                            .expect("resolve");
                        external.init(route.qp_change(QpState::INIT));
                        let pending = route
                            .request(&external.qp, &ConnectParams::default())
                            .expect("request");
                        let response = pending.wait(Some(TIMEOUT)).expect("response");
                        if reject {
                            response.reject(b"changed my mind").expect("reject");
                        } else {
                            drop(response);
                        }
                    });
                    let request = lab::request(&listener);
                    let mut external = ExternalQp::<Rc>::new(endpoint);
                    prepare(&mut external, &request);
                    let pending = request
                        .accept_external(&external.qp, &ConnectParams::default())
                        .expect("accept");
                    let error = pending
                        .wait(Some(TIMEOUT))
                        .map(drop)
                        .expect_err("the connection was rejected");
                    assert_eq!(error.error().kind(), ErrorKind::Disconnected, "{error}");
                    assert!(
                        !reject || error.to_string().contains("changed my mind"),
                        "{error}"
                    );
                });
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn external_queue_pairs_are_unsupported_on_iwarp() {
    for endpoint in one_endpoint_each()
        .iter()
        .filter(|endpoint| endpoint.is_iwarp())
    {
        assert_no_leaks(endpoint, || {
            let listener = endpoint.listen();
            let resources = endpoint.resources();
            let qp = resources.qp();
            let route = Resolver::new(listener.local_addr())
                .timeout(TIMEOUT)
                .resolve()
                .expect("resolve");
            let error = route
                .request(&qp, &ConnectParams::default())
                .map(drop)
                .expect_err("unsupported on iWARP");
            assert_eq!(error.error().kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains(endpoint.name()), "{error}");
        });
    }
}
