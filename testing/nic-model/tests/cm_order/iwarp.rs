//! Connections over a device that says that it is an iWARP adapter. The kernel then changes the
//! states of the queue pairs, and `rdma_connect` blocks.

use std::ffi::c_int;
use std::sync::mpsc::{self, Sender};
use std::time::Instant;

use ibverbs::{AsRaw, GidIndex, QpState, RcPath, device::TransportType};
use rdma_sys::ibv_device;
use rdmacm::{Connecting, PrivateDataLimits, RejectReason};

use super::*;

/// The device of a test, with another transport while this lives.
struct Iwarp {
    device: *mut ibv_device,
    transport: c_int,
    setup: Setup,
}

impl Iwarp {
    fn new() -> Self {
        let setup = Setup::new();
        let device = setup.context.device().as_raw();
        // SAFETY: the device is alive, and other tests wait for this one.
        let transport =
            unsafe { std::mem::replace(&mut (*device).transport_type, TransportType::IWARP.0) };
        Self {
            device,
            transport,
            setup,
        }
    }

    fn start(&self) -> Connecting {
        let ready = self.setup.route().with_qp(self.setup.qp());
        let connecting = ready.expect("INIT").start(&ConnectParams::new());
        connecting.expect("started")
    }

    /// Starts to connect on a channel. `rdma_connect` sends the request, and then blocks until the
    /// sender is dropped.
    fn start_blocked(&self, channel: Option<&EventChannel>) -> (Connecting, Sender<()>) {
        let (gate, closed) = mpsc::channel::<()>();
        calls::replace_next("rdma_connect", move |original| {
            let returned = original();
            closed.recv().expect_err("only dropped");
            returned
        });
        let mut resolver = Resolver::new(self.setup.listener.local_addr()).timeout(TIMEOUT);
        if let Some(channel) = channel {
            resolver = resolver.channel(channel);
        }
        let ready = resolver.resolve().expect("route").with_qp(self.setup.qp());
        let connecting = ready.expect("INIT").start(&ConnectParams::new());
        (connecting.expect("started"), gate)
    }
}

impl Drop for Iwarp {
    fn drop(&mut self) {
        // SAFETY: the device is alive.
        unsafe { (*self.device).transport_type = self.transport };
    }
}

/// Waits until a number of objects is destroyed, and returns them if another thread has done it.
fn destroyed_by_another_thread(count: usize) -> Vec<&'static str> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let list = calls::destroyed_by();
        if list.len() >= count {
            let own = thread::current().id();
            assert!(list.iter().all(|(_, thread)| *thread != own));
            return list.into_iter().map(|(object, _)| object).collect();
        }
        assert!(Instant::now() < deadline, "not destroyed");
        thread::yield_now();
    }
}

#[test]
fn a_thread_connects_and_the_kernel_changes_the_states() {
    let iwarp = Iwarp::new();
    for blocks in [true, false] {
        let (connecting, gate) = if blocks {
            let (connecting, gate) = iwarp.start_blocked(None);
            (connecting, Some(gate))
        } else {
            (iwarp.start(), None)
        };
        let mut connecting = connecting;
        if blocks {
            assert!(connecting.try_finish().expect("no error").is_none());
            assert!(!is_readable(&connecting, Duration::ZERO), "the call blocks");
        }
        drop(gate);
        let ready = iwarp.setup.request().with_qp(iwarp.setup.qp());
        wait_readable(&connecting);
        assert!(connecting.try_finish().expect("no error").is_none());
        assert!(!is_readable(&connecting, Duration::ZERO), "no answer");
        let accepting = ready.expect("INIT").start(&ConnectParams::new());
        let accepting = accepting.expect("accepted");
        let mut active = loop {
            wait_readable(&connecting);
            if let Some(active) = connecting.try_finish().expect("no error") {
                break active;
            }
        };
        let mut passive = accepting.wait(Some(TIMEOUT)).expect("connected");
        let states = |active: &Connection, passive: &Connection| {
            [active, passive].map(|connection| connection.qp().state().expect("state"))
        };
        let expected = [QpState::RTS, QpState::INIT];
        assert_eq!(states(&active, &passive), expected);
        active.disconnect().expect("disconnected");
        wait_readable(&passive);
        passive.try_event().expect("check").expect("an event");
        assert_eq!(states(&active, &passive), expected);
    }
    let threads = calls::reset().params;
    let own = thread::current().id();
    let by_other: Vec<bool> = threads.iter().map(|call| call.thread != own).collect();
    assert_eq!(by_other, [true, false, true, false]);
}

#[test]
fn an_established_connection_is_in_rts_already() {
    let iwarp = Iwarp::new();
    change_first(RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_ESTABLISHED, 0);
    let connecting = iwarp.start();
    let ready = iwarp.setup.request().with_qp(iwarp.setup.qp());
    let accepting = ready.expect("INIT").start(&ConnectParams::new());
    let active = connecting.wait(Some(TIMEOUT)).expect("connected");
    let state = active.qp().state().expect("state");
    assert_eq!(state, QpState::INIT, "the kernel of a test changes nothing");
    drop(accepting.expect("accepted"));
}

#[test]
fn the_error_of_the_handshake_is_returned() {
    let iwarp = Iwarp::new();
    for errno in [Errno::ECONNREFUSED, Errno::EHOSTUNREACH] {
        calls::fail_next("rdma_connect", errno);
        let mut connecting = iwarp.start();
        wait_readable(&connecting);
        calls::destroyed();
        let error = connecting.try_finish().expect_err("failed");
        assert_eq!(calls::destroyed(), ["queue pair", "identifier"]);
        let reason = error.rejection().map(|rejection| rejection.reason);
        let refused = RejectReason::IWARP_REFUSED;
        assert_eq!(reason, (errno == Errno::ECONNREFUSED).then_some(refused));
        connecting.try_finish().expect_err("finished");

        // The kernel does not hold the queue pair, so no thread need destroy it.
        calls::fail_next("rdma_connect", errno);
        let connecting = iwarp.start();
        wait_readable(&connecting);
        drop(connecting);
        assert_eq!(calls::destroyed()[..2], ["queue pair", "identifier"]);

        calls::fail_next("rdma_connect", errno);
        let ready = iwarp.setup.route().with_qp(iwarp.setup.qp());
        let connected = ready
            .expect("INIT")
            .connect(&ConnectParams::new(), Duration::MAX);
        let error = connected.expect_err("failed").to_string();
        assert!(error.contains("rdma_connect"), "{error}");
    }
}

#[test]
fn the_thread_destroys_what_was_dropped_during_its_call() {
    let iwarp = Iwarp::new();
    let shared = EventChannel::create().expect("channel");
    for channel in [None, Some(&shared)] {
        let (connecting, gate) = iwarp.start_blocked(channel);
        calls::destroyed();
        drop(connecting);
        assert_eq!(calls::destroyed(), [""; 0], "the call blocks");
        drop(gate);
        // The thread has the last reference to a channel that is not shared.
        let all = ["queue pair", "identifier", "channel"];
        let expected = &all[..if channel.is_some() { 2 } else { 3 }];
        assert_eq!(destroyed_by_another_thread(expected.len()), expected);
        drop(iwarp.setup.request());
        assert_eq!(shared.try_next().expect("next"), None);
    }

    // Destroying the queue pair can block until the peer answers.
    for is_taken in [true, false] {
        let (mut connecting, gate) = iwarp.start_blocked(Some(&shared));
        drop(gate);
        let request = iwarp.setup.request();
        let key = shared.wait(Some(TIMEOUT)).expect("wait");
        assert_eq!(key, Some(connecting.key()));
        if is_taken {
            assert!(connecting.try_finish().expect("no error").is_none());
        }
        drop(request);
        assert!(is_fd_readable(shared.kernel_fd(), TIMEOUT));
        calls::destroyed();
        let (gate, closed) = mpsc::channel::<()>();
        calls::replace_next("ibv_destroy_qp", move |original| {
            closed.recv().expect_err("only dropped");
            original()
        });
        drop(connecting);
        // The application has no operation for the event.
        assert_eq!(shared.try_next().expect("next"), None);
        drop(gate);
        assert_eq!(destroyed_by_another_thread(2), ["queue pair", "identifier"]);
    }
}

#[test]
fn a_shared_channel_returns_the_key_after_the_call() {
    let iwarp = Iwarp::new();
    let channel = EventChannel::create().expect("channel");
    // The peer answers before the call returns.
    let (mut connecting, gate) = iwarp.start_blocked(Some(&channel));
    drop(iwarp.setup.request());
    assert!(is_fd_readable(channel.kernel_fd(), TIMEOUT));
    assert_eq!(channel.try_next().expect("next"), None);
    drop(gate);
    let key = channel.wait(Some(TIMEOUT)).expect("wait");
    assert_eq!(key, Some(connecting.key()));
    connecting.try_finish().expect_err("rejected");

    let (mut connecting, gate) = iwarp.start_blocked(Some(&channel));
    drop(gate);
    let request = iwarp.setup.request();
    let key = channel.wait(Some(TIMEOUT)).expect("wait");
    assert_eq!(key, Some(connecting.key()));
    assert!(connecting.try_finish().expect("no error").is_none());
    assert_eq!(channel.try_next().expect("next"), None, "no answer");
    drop(request);
    let key = channel.wait(Some(TIMEOUT)).expect("wait");
    assert_eq!(key, Some(connecting.key()));
    connecting.try_finish().expect_err("rejected");
}

#[test]
fn what_iwarp_lacks_is_refused() {
    let iwarp = Iwarp::new();
    let setup = &iwarp.setup;
    let (qp, params) = (setup.qp(), ConnectParams::new());
    let check = |error: ibverbs::Error| {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("iWARP"), "{error}");
    };
    let route = setup.route();
    let limits = PrivateDataLimits::new(TransportType::IWARP);
    assert_eq!(route.private_data_limits(), limits);
    check(route.request(&qp, &params).expect_err("external").into());
    let connecting = iwarp.start();
    let accepted = setup.request().accept_external(&qp, &params);
    check(accepted.expect_err("external").into());
    drop(connecting);

    // Soft-iWARP reports success for a queue pair in every state.
    let mut used = setup.qp();
    let port = setup.context.query_port(1).expect("port");
    used.init(&RcPath::new(1, GidIndex(0), port.active_mtu))
        .expect("INIT");
    used.to_error().expect("ERR");
    calls::replace_next("ibv_modify_qp", |_| 0);
    let error = setup.route().with_qp(used).expect_err("a used queue pair");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");

    let address = setup.listener.local_addr();
    check(Resolver::new(address).resolve_datagram().expect_err("UD"));
    let options = ListenOptions::new();
    let local = (Ipv4Addr::LOCALHOST, 0).into();
    check(options.bind_datagram(local).expect_err("UD"));
    // The device is not known yet.
    let any = (Ipv4Addr::UNSPECIFIED, 0).into();
    let listener = options.bind_datagram(any).expect("a listener");
    let request = datagram::try_request(setup, &listener, calls::last_id());
    check(request.expect_err("UD"));
    let mut joining = datagram::start_join(setup);
    wait_readable(&joining);
    check(joining.try_finish().expect_err("UD"));
}
