//! Shared by the device tests: the devices, their addresses, and connected pairs.

#![allow(dead_code, unused_imports, reason = "each test program uses its part")]

pub(crate) mod post;

use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{
    AccessFlags, CompletionQueue, Context, CqOptions, ProtectionDomain, QpOptions, QueuePair, Rc,
    RemoteMemory, Retired, device::TransportType, port::LinkLayer, wr,
};
use rdmacm::{CmEventType, ConnectParams, ConnectRequest, Connection, Listener, Resolver};

pub(crate) use test_support::lab::devices;
use test_support::lab::{ip_addresses, is_model};
pub(crate) use test_support::leak_check::{LeakCheck, forget};

/// Time limit of every wait, long enough for a busy machine under emulation.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Tag of an empty WRITE: see [`Peer::wait_for_effect`].
const RTR: u64 = u64::MAX;

/// A device and one of its IP addresses.
pub(crate) struct Endpoint {
    pub(crate) context: Context,
    pub(crate) ip: IpAddr,
}

/// Returns every device with its IPv4 address and with its IPv6 address.
pub(crate) fn endpoints() -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    for context in devices() {
        let netdev = context
            .netdev(1)
            .expect("a network interface behind the device");
        let addresses = ip_addresses(&netdev);
        for (family, is_family) in [
            ("IPv4", IpAddr::is_ipv4 as fn(&IpAddr) -> bool),
            ("IPv6", IpAddr::is_ipv6),
        ] {
            let ip = addresses
                .iter()
                .copied()
                .find(is_family)
                .unwrap_or_else(|| {
                    panic!(
                        "{netdev} of {} has no {family} address",
                        context.device_name()
                    )
                });
            println!("device: {} at {ip}", context.device_name());
            endpoints.push(Endpoint {
                context: context.clone(),
                ip,
            });
        }
    }
    endpoints
}

/// Returns each device with one address, for tests that do not depend on the address family: IPv4
/// on RoCE, IPv6 on iWARP.
pub(crate) fn one_endpoint_each() -> Vec<Endpoint> {
    let is_selected = |endpoint: &Endpoint| endpoint.ip.is_ipv4() != endpoint.is_iwarp();
    endpoints().into_iter().filter(is_selected).collect()
}

impl Endpoint {
    pub(crate) fn name(&self) -> &str {
        self.context.device_name()
    }

    pub(crate) fn is_iwarp(&self) -> bool {
        self.context.device().transport() == TransportType::IWARP
    }

    pub(crate) fn is_infiniband(&self) -> bool {
        let port = self.context.query_port(1).expect("port");
        !self.is_iwarp() && port.link_layer == LinkLayer::INFINIBAND
    }

    /// Returns `true` if rdma_cm connects datagram queue pairs and groups on the device. Reports a
    /// model of an adapter, which lacks them, as a device that does not support them.
    pub(crate) fn has_datagrams(&self) -> bool {
        if is_model() {
            println!("unsupported: {} datagrams of rdma_cm", self.name());
            return false;
        }
        !self.is_iwarp()
    }

    pub(crate) fn listen(&self) -> Listener {
        Listener::bind(SocketAddr::new(self.ip, 0), 16).expect("listen")
    }

    pub(crate) fn resources(&self) -> Resources {
        Resources::new(&self.context)
    }

    /// Connects to a listener of the same endpoint that accepts on another thread.
    pub(crate) fn pair(&self) -> (Peer, Peer) {
        self.pair_with_access(AccessFlags::empty())
    }

    /// Like [`pair`](Self::pair), with remote access rights on both sides.
    pub(crate) fn pair_with_access(&self, access: AccessFlags) -> (Peer, Peer) {
        let listener = self.listen();
        let address = listener.local_addr();
        thread::scope(|scope| {
            let passive = scope.spawn(|| accept_with(&listener, self.resources(), b"", access));
            let active = connect_with(address, self.resources(), b"", access);
            (active, passive.join().expect("passive side"))
        })
    }
}

/// The objects on which one side creates its queue pair.
pub(crate) struct Resources {
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
}

impl Resources {
    pub(crate) fn new(context: &Context) -> Self {
        let cq = context
            .create_cq(CqOptions::new().depth(64))
            .expect("completion queue");
        Self {
            pd: context.alloc_pd().expect("protection domain"),
            cq,
        }
    }

    pub(crate) fn qp(&self) -> QueuePair<Rc> {
        let options = QpOptions::new().max_send_wr(16).max_recv_wr(16);
        self.pd
            .create_qp::<Rc>(&self.cq, &self.cq, options)
            .expect("queue pair")
    }

    pub(crate) fn receive_on(&self, qp: &mut QueuePair<Rc>) {
        qp.post_recv(wr::recv(self.pd.buf(64).expect("buffer")))
            .expect("receive");
    }
}

/// Objects for many queue pairs, some on each context of the device. Soft-iWARP fails to create one
/// in dozens on a single context (docs/drivers.md, fault 2).
pub(crate) struct ResourcePool(Vec<Resources>);

impl ResourcePool {
    const EACH: usize = 16;

    pub(crate) fn new(endpoint: &Endpoint, count: usize) -> Self {
        let open = || Resources::new(&endpoint.context.device().open().expect("open"));
        Self((0..count.div_ceil(Self::EACH)).map(|_| open()).collect())
    }

    pub(crate) fn qp(&self, number: usize) -> QueuePair<Rc> {
        self.0[number / Self::EACH].qp()
    }
}

/// A connection and its objects. The connection is dropped first.
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    pub(crate) resources: Resources,
}

impl Peer {
    pub(crate) fn send(&mut self, text: &[u8]) {
        let mut message = self.resources.pd.buf(text.len()).expect("buffer");
        message.copy_from_slice(text);
        self.connection
            .qp_mut()
            .post_send(wr::send(message))
            .expect("send");
    }

    pub(crate) fn receive(&mut self) {
        self.resources.receive_on(self.connection.qp_mut());
    }

    /// Waits for the next completion. Returns `None` on timeout.
    pub(crate) fn retire_within(&mut self, timeout: Duration) -> Option<Retired> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(completion) = self.resources.cq.poll().expect("poll").next() {
                let retired = self.connection.qp_mut().retire(completion);
                let retired = retired.expect("in flight");
                if retired.tag() != RTR {
                    return Some(retired);
                }
                continue;
            }
            if Instant::now() >= deadline {
                return None;
            }
            thread::yield_now();
        }
    }

    pub(crate) fn retire(&mut self) -> Retired {
        self.retire_within(TIMEOUT).expect("a completion")
    }

    /// Waits for the effect of the first message, which the side that connected has sent. `wait`
    /// waits for it for a limited time.
    ///
    /// The passive side of Soft-iWARP may not notice that message before more data arrives
    /// (docs/drivers.md, fault 50). Empty WRITEs are that data.
    pub(crate) fn wait_for_effect<R>(
        &mut self,
        mut wait: impl FnMut(&mut Self, Duration) -> Option<R>,
    ) -> R {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(effect) = wait(self, Duration::from_millis(100)) {
                return effect;
            }
            assert!(Instant::now() < deadline, "no effect in time");
            let qp = self.connection.qp_mut();
            if self.resources.pd.context().device().transport() == TransportType::IWARP
                && qp.send_slots_free() > 1
            {
                let nowhere = RemoteMemory {
                    addr: 0,
                    len: 0,
                    rkey: 0,
                };
                qp.post_send(wr::write(wr::Empty, nowhere).tag(RTR))
                    .expect("an empty WRITE");
            }
        }
    }

    /// Waits for the event that the connection has ended, after the first message of this side,
    /// which connected.
    pub(crate) fn expect_disconnected_after_first(&mut self) {
        let event = self.wait_for_effect(|peer, time| {
            // Takes the completions of the empty WRITEs, and of flushed requests.
            let _ = peer.retire_within(Duration::ZERO);
            peer.connection.wait_event(Some(time)).expect("wait")
        });
        assert_eq!(event.event_type, CmEventType::DISCONNECTED, "{event:?}");
    }

    /// Waits for the event that the connection has ended.
    pub(crate) fn expect_disconnected(&mut self) {
        let event = self
            .connection
            .wait_event(Some(TIMEOUT))
            .expect("wait")
            .expect("an event in time");
        assert_eq!(event.event_type, CmEventType::DISCONNECTED, "{event:?}");
        assert!(self.connection.is_disconnected());
    }
}

/// Connects with one receive posted.
pub(crate) fn connect(address: SocketAddr, resources: Resources, private_data: &[u8]) -> Peer {
    connect_with(address, resources, private_data, AccessFlags::empty())
}

fn connect_with(
    address: SocketAddr,
    resources: Resources,
    private_data: &[u8],
    access: AccessFlags,
) -> Peer {
    let route = Resolver::new(address)
        .timeout(TIMEOUT)
        .resolve()
        .expect("resolve");
    assert_eq!(route.device_name(), resources.pd.context().device_name());
    let ready = route.access(access).with_qp(resources.qp());
    let mut ready = ready.expect("INIT");
    resources.receive_on(ready.qp_mut());
    let params = ConnectParams::new().private_data(private_data);
    Peer {
        connection: ready.connect(&params, TIMEOUT).expect("connect"),
        resources,
    }
}

/// Waits for a connect request.
pub(crate) fn request(listener: &Listener) -> ConnectRequest {
    let request = listener.next_request(Some(TIMEOUT)).expect("accept");
    request.expect("a request in time")
}

/// Accepts with one receive posted.
pub(crate) fn accept(listener: &Listener, resources: Resources, private_data: &[u8]) -> Peer {
    accept_with(listener, resources, private_data, AccessFlags::empty())
}

fn accept_with(
    listener: &Listener,
    resources: Resources,
    private_data: &[u8],
    access: AccessFlags,
) -> Peer {
    let request = request(listener);
    assert_eq!(request.device_name(), resources.pd.context().device_name());
    let ready_request = request.access(access).with_qp(resources.qp());
    let mut ready_request = ready_request.expect("INIT");
    resources.receive_on(ready_request.qp_mut());
    let params = ConnectParams::new().private_data(private_data);
    Peer {
        connection: ready_request.accept(&params, TIMEOUT).expect("accept"),
        resources,
    }
}

/// An endpoint. Dropping this fails if objects on the device or descriptors of this process are
/// left.
pub(crate) struct LeakChecked {
    _leak_check: LeakCheck,
    endpoint: Endpoint,
}

impl Deref for LeakChecked {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

/// Checks the device of each endpoint for leaks.
pub(crate) fn leak_checked(
    endpoints: impl IntoIterator<Item = Endpoint>,
) -> impl Iterator<Item = LeakChecked> {
    endpoints.into_iter().map(|endpoint| LeakChecked {
        _leak_check: leak_check(&endpoint),
        endpoint,
    })
}

/// Counts the objects on the device of an endpoint.
fn leak_check(endpoint: &Endpoint) -> LeakCheck {
    // librdmacm opens a device at its first use and keeps it open until the process exits.
    drop(
        Resolver::new(SocketAddr::new(endpoint.ip, 9))
            .timeout(TIMEOUT)
            .resolve()
            .expect("resolve"),
    );
    LeakCheck::on_device(endpoint.name()).timeout(Duration::from_secs(60))
}

/// Runs `work` and fails if it leaves objects behind.
pub(crate) fn assert_no_leaks(endpoint: &Endpoint, work: impl FnOnce()) {
    let _leak_check = leak_check(endpoint);
    work();
}
