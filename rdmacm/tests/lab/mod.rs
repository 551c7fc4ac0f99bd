//! What the device tests share: the devices, their addresses, and connected pairs.

#![allow(dead_code, unused_imports, reason = "each test program uses its part")]

pub(crate) mod post;

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{
    CompletionQueue, Context, CqOptions, ProtectionDomain, QpOptions, QueuePair, Rc, Retired,
    device::TransportType, wr,
};
use rdmacm::{CmEventType, ConnectParams, Connection, Listener, Resolver};

pub(crate) use test_support::lab::devices;
use test_support::lab::ip_addresses;
pub(crate) use test_support::leak_check::{LeakCheck, forget};

/// Long enough for a busy machine that emulates another.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A device and one of its addresses.
pub(crate) struct Place {
    pub(crate) context: Context,
    pub(crate) ip: IpAddr,
}

/// Every device with an IPv4 and with an IPv6 address.
pub(crate) fn places() -> Vec<Place> {
    let mut all = Vec::new();
    for context in devices() {
        let netdev = context
            .netdev(1)
            .expect("a network interface behind the device");
        let addresses = ip_addresses(&netdev);
        for (family, is_it) in [
            ("IPv4", IpAddr::is_ipv4 as fn(&IpAddr) -> bool),
            ("IPv6", IpAddr::is_ipv6),
        ] {
            let ip = addresses.iter().copied().find(is_it).unwrap_or_else(|| {
                panic!(
                    "{netdev} of {} has no {family} address",
                    context.device_name()
                )
            });
            println!("device: {} at {ip}", context.device_name());
            all.push(Place {
                context: context.clone(),
                ip,
            });
        }
    }
    all
}

/// Each device with one of its addresses, for what does not depend on the family: RoCE by IPv4,
/// iWARP by IPv6.
pub(crate) fn one_place_each() -> Vec<Place> {
    let is_fitting = |place: &Place| place.ip.is_ipv4() != place.is_iwarp();
    places().into_iter().filter(is_fitting).collect()
}

impl Place {
    pub(crate) fn name(&self) -> &str {
        self.context.device_name()
    }

    pub(crate) fn is_iwarp(&self) -> bool {
        self.context.device().transport() == TransportType::IWARP
    }

    pub(crate) fn listen(&self) -> Listener {
        Listener::bind(SocketAddr::new(self.ip, 0), 16).expect("listen")
    }

    pub(crate) fn end(&self) -> End {
        End::new(&self.context)
    }

    /// Listens, accepts on another thread, connects.
    pub(crate) fn pair(&self) -> (Wired, Wired) {
        let listener = self.listen();
        let address = listener.local_addr();
        thread::scope(|scope| {
            let passive = scope.spawn(|| accept(&listener, self.end(), b""));
            let active = connect(address, self.end(), b"");
            (active, passive.join().expect("passive side"))
        })
    }
}

/// What one side makes its queue pair on.
pub(crate) struct End {
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
}

impl End {
    pub(crate) fn new(context: &Context) -> Self {
        let cq = context
            .create_cq(CqOptions {
                depth: 64,
                ..CqOptions::default()
            })
            .expect("completion queue");
        Self {
            pd: context.alloc_pd().expect("domain"),
            cq,
        }
    }

    pub(crate) fn qp(&self) -> QueuePair<Rc> {
        let options = QpOptions {
            max_send_wr: 16,
            max_recv_wr: 16,
            ..QpOptions::default()
        };
        self.pd
            .create_qp::<Rc>(&self.cq, &self.cq, options)
            .expect("queue pair")
    }

    pub(crate) fn receive_on(&self, qp: &mut QueuePair<Rc>) {
        qp.post_recv(wr::recv(self.pd.buf(64).expect("buffer")))
            .expect("receive");
    }
}

/// Ends for many queue pairs, some on each opening of the device: Soft-iWARP refuses one in dozens
/// of an opening (ci/DRIVERS.md, fault 2).
pub(crate) struct Ends(Vec<End>);

impl Ends {
    const EACH: usize = 16;

    pub(crate) fn new(place: &Place, count: usize) -> Self {
        let open = || End::new(&place.context.device().open().expect("open"));
        Self((0..count.div_ceil(Self::EACH)).map(|_| open()).collect())
    }

    pub(crate) fn qp(&self, number: usize) -> QueuePair<Rc> {
        self.0[number / Self::EACH].qp()
    }
}

/// A connection and what it was made on; the connection goes first.
pub(crate) struct Wired {
    pub(crate) connection: Connection,
    pub(crate) end: End,
}

impl Wired {
    pub(crate) fn send(&mut self, text: &[u8]) {
        let mut message = self.end.pd.buf(text.len()).expect("buffer");
        message.copy_from_slice(text);
        self.connection
            .qp_mut()
            .post_send(wr::send(message))
            .expect("send");
    }

    pub(crate) fn receive(&mut self) {
        self.end.receive_on(self.connection.qp_mut());
    }

    /// Waits for the next completion; `None` when the time is over.
    pub(crate) fn retire_within(&mut self, timeout: Duration) -> Option<Retired> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(completion) = self.end.cq.poll().expect("poll").next() {
                return Some(
                    self.connection
                        .qp_mut()
                        .retire(completion)
                        .expect("in flight"),
                );
            }
            if Instant::now() >= deadline {
                return None;
            }
            thread::yield_now();
        }
    }

    pub(crate) fn retire(&mut self) -> Retired {
        self.retire_within(PATIENCE).expect("a completion")
    }

    /// Waits until the connection is told to be over.
    pub(crate) fn expect_disconnected(&mut self) {
        let event = self
            .connection
            .wait_event(Some(PATIENCE))
            .expect("wait")
            .expect("an event in time");
        assert_eq!(event.event_type, CmEventType::DISCONNECTED, "{event:?}");
        assert!(self.connection.is_disconnected());
    }
}

/// Connects with one receive posted.
pub(crate) fn connect(address: SocketAddr, end: End, private_data: &[u8]) -> Wired {
    let route = Resolver::new(address)
        .timeout(PATIENCE)
        .resolve()
        .expect("resolve");
    assert_eq!(route.device_name(), end.pd.context().device_name());
    let mut ready = route.with_qp(end.qp()).expect("INIT");
    end.receive_on(ready.qp_mut());
    let params = ConnectParams {
        private_data,
        ..ConnectParams::default()
    };
    Wired {
        connection: ready.connect(&params, PATIENCE).expect("connect"),
        end,
    }
}

/// Accepts with one receive posted.
pub(crate) fn accept(listener: &Listener, end: End, private_data: &[u8]) -> Wired {
    let request = listener
        .accept(Some(PATIENCE))
        .expect("accept")
        .expect("a request in time");
    assert_eq!(request.device_name(), end.pd.context().device_name());
    let mut pending = request.with_qp(end.qp()).expect("INIT");
    end.receive_on(pending.qp_mut());
    let params = ConnectParams {
        private_data,
        ..ConnectParams::default()
    };
    Wired {
        connection: pending.accept(&params, PATIENCE).expect("accept"),
        end,
    }
}

/// Runs `work` and fails if it leaves objects on the device or descriptors in this process that do
/// not disappear within `timeout`.
pub(crate) fn leaves_nothing_within(place: &Place, timeout: Duration, work: impl FnOnce()) {
    // librdmacm opens a device at its first use and keeps it open until the process exits.
    drop(
        Resolver::new(SocketAddr::new(place.ip, 9))
            .timeout(PATIENCE)
            .resolve()
            .expect("resolve"),
    );
    let _leak_check = LeakCheck::on_device(place.name()).timeout(timeout);
    work();
}

/// Runs `work` and fails if it leaves objects behind.
pub(crate) fn leaves_nothing(place: &Place, work: impl FnOnce()) {
    leaves_nothing_within(place, PATIENCE, work);
}
