//! Behaviour of rdmacm that neither the kernel nor the model requires: the order in which it
//! destroys objects, the calls that exclude each other, and what it does on iWARP, with
//! datagrams, and after failed calls. Functions that replace those of libibverbs and librdmacm in
//! this program see it.
#![allow(unsafe_code, reason = "replaces functions of C libraries")]

mod calls;
mod datagram;
mod ending;
mod iwarp;
mod listening;
mod params;

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use ibverbs::{Context, CqOptions, Device, ErrorKind, ProtectionDomain, QpOptions, QueuePair, Rc};
use nic_model::{Link, Options};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdma_sys::{
    RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_RESPONSE,
    RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ROUTE_RESOLVED,
};
use rdmacm::params::Ece;
use rdmacm::{
    CmEventType, ConnectParams, ConnectRequest, Connection, EventChannel, InProgress,
    ListenOptions, Listener, Resolver, Route,
};

const TIMEOUT: Duration = Duration::from_secs(20);

/// The device, and a listener. The tests take turns, because they share what [`calls`] records.
struct Setup {
    context: Context,
    listener: Listener,
    _alone: MutexGuard<'static, ()>,
}

impl Setup {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        nic_model::start(Options::new().link(Link::Ethernet)).expect("start of the model");
        calls::reset();
        let device = Device::by_name("mlx5_0").expect("mlx5_0");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            context: device.open().expect("open"),
            listener: Listener::bind(address, 4).expect("listener"),
            _alone: alone,
        }
    }

    fn pd(&self) -> ProtectionDomain {
        self.context.alloc_pd().expect("domain")
    }

    fn qp(&self) -> QueuePair<Rc> {
        let pd = self.pd();
        let cq = self.context.create_cq(CqOptions::new().depth(16));
        let cq = cq.expect("completion queue");
        pd.create_qp::<Rc>(&cq, &cq, QpOptions::new()).expect("qp")
    }

    fn route(&self) -> Route {
        let resolver = Resolver::new(self.listener.local_addr()).timeout(TIMEOUT);
        resolver.resolve().expect("route")
    }

    /// Connects two queue pairs.
    fn pair(&self) -> (Connection, Connection) {
        let params = ConnectParams::new();
        let ready = self.route().with_qp(self.qp()).expect("INIT");
        let connecting = ready.start(&params).expect("started");
        let ready = self.request().with_qp(self.qp()).expect("INIT");
        let accepting = ready.start(&params).expect("accepted");
        let active = connecting.wait(Some(TIMEOUT)).expect("connected");
        (active, accepting.wait(Some(TIMEOUT)).expect("connected"))
    }

    fn request(&self) -> ConnectRequest {
        let request = self.listener.next_request(Some(TIMEOUT)).expect("accept");
        request.expect("in time")
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        if !thread::panicking() {
            calls::check_events();
        }
    }
}

fn is_readable(source: &impl AsFd, time: Duration) -> bool {
    is_fd_readable(source.as_fd(), time)
}

fn is_fd_readable(fd: BorrowedFd<'_>, time: Duration) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(time).expect("a short time");
    poll(&mut fds, limit) == Ok(1)
}

fn wait_readable(source: &impl AsFd) {
    assert!(is_readable(source, TIMEOUT), "not readable in time");
}

/// Drops a value that owns a queue pair, its identifier and the channel of that.
fn check_order<T>(what: &str, value: T, end: impl FnOnce(T)) {
    calls::destroyed();
    end(value);
    let expected = ["queue pair", "identifier", "channel"];
    assert_eq!(calls::destroyed(), expected, "{what}");
}

#[test]
fn a_queue_pair_is_destroyed_before_its_identifier() {
    let setup = Setup::new();
    let params = ConnectParams::new();
    let ready = || setup.route().with_qp(setup.qp()).expect("INIT");
    let request = || setup.request().with_qp(setup.qp()).expect("INIT");
    check_order("a route", ready(), drop);
    check_order("wrong parameters", ready(), |ready| {
        ready.start(&params.retry_count(8)).expect_err("too many");
    });

    let connecting = ready().start(&params).expect("started");
    check_order("a request", request(), drop);
    check_order("a connection in progress", connecting, drop);

    let connecting = ready().start(&params).expect("started");
    let ready_request = request();
    check_order("a rejected request", ready_request, |request| {
        request.reject(b"").expect("rejected");
    });
    check_order("a rejected connection", connecting, |connecting| {
        connecting.wait(Some(TIMEOUT)).expect_err("rejected");
    });

    let connecting = ready().start(&params).expect("started");
    let accepting = request().start(&params).expect("accepted");
    check_order("an acceptance", accepting, drop);
    drop(connecting);

    let connecting = ready().start(&params).expect("started");
    let accepting = request().start(&params).expect("accepted");
    let active = connecting.wait(Some(TIMEOUT)).expect("connected");
    let passive = accepting.wait(Some(TIMEOUT)).expect("connected");
    check_order("a connection", active, drop);
    check_order("a closed connection", passive, |passive| {
        drop(passive.close().expect("closed"));
    });
}

#[test]
fn a_replaced_queue_pair_is_noticed() {
    let setup = Setup::new();
    let mut ready = setup.route().with_qp(setup.qp()).expect("INIT");
    *ready.qp_mut() = setup.qp();
    let error = ready.start(&ConnectParams::new()).expect_err("another one");
    assert_eq!(error.error().kind(), ErrorKind::Mismatch, "{error}");

    let peer = setup.route().with_qp(setup.qp()).expect("INIT");
    let peer = peer.start(&ConnectParams::new()).expect("started");
    let mut request = setup.request().with_qp(setup.qp()).expect("INIT");
    *request.qp_mut() = setup.qp();
    let error = request
        .start(&ConnectParams::new())
        .expect_err("another one");
    assert_eq!(error.error().kind(), ErrorKind::Mismatch, "{error}");
    drop(peer);
}

/// Counts the attempts of other threads to read an event while the next call of a function lasts.
fn count_reads_during_next(name: &'static str, count: &Arc<AtomicU32>) {
    let count = Arc::clone(count);
    calls::replace_next(name, move |original| {
        let before = calls::reads();
        let returned = original();
        // Other threads have the time to read the event.
        thread::sleep(Duration::from_millis(50));
        count.fetch_add(calls::reads() - before, Ordering::SeqCst);
        returned
    });
}

/// librdmacm writes the addresses and the options of an identifier when it reads events, too.
#[test]
fn no_event_is_read_while_an_identifier_is_used() {
    let setup = Setup::new();
    let channel = EventChannel::create().expect("channel");
    let done = AtomicBool::new(false);
    let reads = Arc::new(AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let _ = channel.try_next();
            }
        });
        for _ in 0..2 {
            count_reads_during_next("rdma_resolve_addr", &reads);
            let resolver = Resolver::new(setup.listener.local_addr()).timeout(TIMEOUT);
            let resolving = resolver.channel(&channel).start().expect("started");
            assert!(format!("{resolving:?}").contains("Resolving"));
            drop(resolving.wait(Some(TIMEOUT)).expect("resolved"));
        }
        let (mut active, passive) = setup.pair();
        active.migrate(&channel).expect("migrated");
        count_reads_during_next("rdma_get_remote_ece", &reads);
        assert_eq!(active.remote_ece().expect("options"), Ece::default());
        drop((active, passive));
        done.store(true, Ordering::SeqCst);
    });
    assert_eq!(reads.load(Ordering::SeqCst), 0);
}

/// A new identifier can get the address of a destroyed one.
#[test]
fn an_identifier_is_unregistered_before_it_is_destroyed() {
    let setup = Setup::new();
    let channel = EventChannel::create().expect("channel");
    let resolver = Resolver::new(setup.listener.local_addr()).channel(&channel);
    let resolving = resolver.start().expect("started");
    let next = channel.wait(Some(TIMEOUT)).expect("wait");
    assert_eq!(next, Some(resolving.key()));
    let (sender, seen) = mpsc::channel();
    let reader = channel.clone();
    calls::replace_next("rdma_destroy_id", move |original| {
        sender.send(reader.try_next()).expect("the test waits");
        original()
    });
    drop(resolving);
    let seen = seen.recv().expect("destroyed").expect("next");
    assert_eq!(seen, None);
}

#[test]
fn an_identifier_that_stays_alive_keeps_its_channel() {
    let setup = Setup::new();
    let check = |what: &str, end: &mut dyn FnMut()| {
        let before = ibverbs::leaked_objects();
        calls::destroyed();
        calls::fail_next("rdma_destroy_id", Errno::EBUSY);
        end();
        assert_eq!(ibverbs::leaked_objects(), before + 1, "{what}");
        calls::destroyed()
    };
    let mut route = Some(setup.route());
    let destroyed = check("a route", &mut || route = None);
    assert_eq!(destroyed, ["identifier"]);

    // The identifier of a connect request that was not taken, on the channel of the listener.
    let channel = EventChannel::create().expect("channel");
    let listener = ListenOptions::new()
        .channel(&channel)
        .bind((Ipv4Addr::LOCALHOST, 0).into());
    let mut listener = Some(listener.expect("listener"));
    let address = listener.as_ref().map(Listener::local_addr);
    let route = Resolver::new(address.expect("a listener")).resolve();
    let ready = route.expect("route").with_qp(setup.qp()).expect("INIT");
    let connecting = ready.start(&ConnectParams::new()).expect("started");
    assert!(channel.wait(Some(TIMEOUT)).expect("wait").is_some());
    let shown = format!("{channel:?}");
    assert!(shown.contains("is_hidden: true"), "{shown}");
    let mut channel = Some(channel);
    let destroyed = check("a request", &mut || {
        listener = None;
        let shown = format!("{channel:?}");
        assert!(shown.contains("queues: {}"), "{shown}");
        channel = None;
    });
    assert_eq!(destroyed, ["identifier", "identifier"]);
    drop(connecting);
}

#[test]
fn events_that_are_read_during_a_migration_are_kept() {
    let setup = Setup::new();
    for (fails, is_read) in [(true, false), (false, true), (false, false)] {
        let (mut active, mut passive) = setup.pair();
        let key = passive.key();
        active.disconnect().expect("disconnected");
        wait_readable(&passive);
        let to = EventChannel::create().expect("channel");
        if fails {
            calls::fail_next("rdma_migrate_id", Errno::ENODEV);
            let error = passive.migrate(&to).expect_err("failed");
            assert_eq!(error.call(), "rdma_migrate_id", "{error}");
            assert!(!passive.channel().is_shared());
            assert!(format!("{to:?}").contains("queues: {}"), "{to:?}");
        } else {
            let reader = to.clone();
            calls::replace_next("rdma_migrate_id", move |original| {
                let returned = original();
                if is_read {
                    reader.try_next().expect("next");
                }
                returned
            });
            passive.migrate(&to).expect("migrated");
            assert!(passive.channel().is_shared());
            assert!(format!("{to:?}").contains("DISCONNECTED"), "{to:?}");
        }
        assert_eq!(to.try_next().expect("next"), (!fails).then_some(key));
        let event = passive.try_event().expect("check").expect("an event");
        assert_eq!(event.event_type, CmEventType::DISCONNECTED);
        assert_eq!(to.try_next().expect("next"), None);
    }
}

#[test]
fn a_queue_pair_of_another_device_is_noticed() {
    let setup = Setup::new();
    let (qp, params) = (setup.qp(), ConnectParams::new());
    let check = |error: ibverbs::Error| {
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        assert!(error.to_string().contains("mlx5_9"), "{error}");
    };
    let renamed = |end: &dyn Fn(&Setup) -> ibverbs::Error| {
        calls::rename_devices(Some(c"mlx5_9"));
        check(end(&setup));
        calls::rename_devices(None);
    };
    renamed(&|setup| setup.route().with_qp(setup.qp()).expect_err("another"));
    renamed(&|setup| {
        let requested = setup.route().request(&qp, &params);
        requested.expect_err("another").into()
    });
    for external in [false, true] {
        let peer = setup.route().with_qp(setup.qp()).expect("INIT");
        let peer = peer.start(&params).expect("started");
        renamed(&|setup| {
            let request = setup.request();
            if external {
                let accepted = request.accept_external(&qp, &params);
                accepted.expect_err("another").into()
            } else {
                request.with_qp(setup.qp()).expect_err("another")
            }
        });
        drop(peer);
    }
}

/// Returns a function that changes the first event of a type.
fn change_first(from: u32, to: u32, status: i32) {
    let mut is_changed = false;
    calls::change_events(move |event| {
        if event.event == from && !is_changed {
            (event.event, event.status) = (to, status);
            is_changed = true;
        }
    });
}

/// The kernel can miss that the address of a neighbour has arrived, and reports a timeout then.
#[test]
fn an_address_is_resolved_again_until_the_time_limit() {
    let setup = Setup::new();
    let (error, timed_out) = (RDMA_CM_EVENT_ADDR_ERROR, -libc::ETIMEDOUT);
    let start = |timeout, from, to, status| {
        calls::reset();
        change_first(from, to, status);
        let resolver = Resolver::new(setup.listener.local_addr()).timeout(timeout);
        let mut resolving = resolver.start().expect("started");
        calls::replace_next("rdma_resolve_addr", |_| 0);
        let mut outcome = resolving.try_finish();
        while calls::reads() < 10 && matches!(outcome, Ok(None)) {
            outcome = resolving.try_finish();
        }
        if outcome.is_err() {
            let again = resolving.try_finish().expect_err("finished");
            assert_eq!(again.kind(), ErrorKind::InvalidInput, "{again}");
        }
        let outcome = outcome.map(|route| route.is_some());
        (outcome, calls::reset().time_limits)
    };
    let resolved = RDMA_CM_EVENT_ADDR_RESOLVED;

    let (outcome, limits) = start(TIMEOUT, resolved, error, timed_out);
    assert_eq!(outcome.ok(), Some(false), "the second attempt has no event");
    assert_eq!(limits, [250, 250]);

    let (outcome, limits) = start(Duration::ZERO, resolved, error, timed_out);
    let kind = outcome.expect_err("no time is left").kind();
    assert_eq!((kind, limits), (ErrorKind::TimedOut, vec![1]));

    let (outcome, limits) = start(TIMEOUT, resolved, error, -libc::EHOSTUNREACH);
    let errno = outcome.expect_err("another reason").errno();
    assert_eq!(errno.map(|errno| errno.0), Some(libc::EHOSTUNREACH));
    assert_eq!(limits, [250]);

    let routed = RDMA_CM_EVENT_ROUTE_RESOLVED;
    let (outcome, limits) = start(TIMEOUT, routed, error, timed_out);
    let failed = outcome.expect_err("of the route");
    assert_eq!(failed.call(), "rdma_resolve_route", "{failed}");
    assert_eq!(limits, [250]);

    let (outcome, _) = start(TIMEOUT, resolved, routed, 0);
    let unexpected = outcome.expect_err("the address is not resolved");
    assert_eq!(unexpected.call(), "rdma_resolve_addr", "{unexpected}");
}

#[test]
fn the_cleanup_precedes_the_end_of_an_acceptance_only() {
    let setup = Setup::new();
    let start = |params: &ConnectParams<'_>| {
        let peer = setup.route().with_qp(setup.qp()).expect("INIT");
        let peer = peer.start(&ConnectParams::new()).expect("started");
        let mut ready = setup.request().with_qp(setup.qp()).expect("INIT");
        ready.set_cleanup(|qp| {
            assert!(!qp.is_destroyed());
            calls::note_destroyed("cleanup");
        });
        calls::destroyed();
        (peer, ready.start(params))
    };
    let all = ["cleanup", "queue pair", "identifier", "channel"];
    let (peer, accepting) = start(&ConnectParams::new());
    drop(accepting.expect("accepted"));
    assert_eq!(calls::destroyed(), all);
    drop(peer);

    change_first(RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED, 28);
    let (peer, accepting) = start(&ConnectParams::new());
    let mut accepting = accepting.expect("accepted");
    let peer = peer.wait(Some(TIMEOUT)).expect("connected");
    wait_readable(&accepting);
    let rejected = accepting.try_finish().expect_err("rejected");
    assert!(rejected.rejection().is_some(), "{rejected}");
    assert_eq!(calls::destroyed(), all[..3]);
    drop((peer, accepting));

    let (peer, accepting) = start(&ConnectParams::new());
    let peer = peer.wait(Some(TIMEOUT)).expect("connected");
    let accepting = accepting.expect("accepted");
    drop(accepting.wait(Some(TIMEOUT)).expect("connected"));
    assert_eq!(calls::destroyed(), all[1..]);
    drop(peer);

    let (peer, accepting) = start(&ConnectParams::new().retry_count(8));
    accepting.expect_err("not accepted");
    assert_eq!(calls::destroyed(), all[1..]);
    drop(peer);
}

/// An event that belongs to another step.
#[test]
fn unexpected_events_end_the_handshake() {
    let setup = Setup::new();
    let params = ConnectParams::new();
    let (response, established) = (RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_ESTABLISHED);
    change_first(response, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    let connecting = setup.route().with_qp(setup.qp()).expect("INIT");
    let mut connecting = connecting.start(&params).expect("started");
    let accepting = setup.request().with_qp(setup.qp()).expect("INIT");
    let accepting = accepting.start(&params).expect("accepted");
    wait_readable(&connecting);
    calls::destroyed();
    let error = connecting.try_finish().expect_err("not a response");
    assert!(error.to_string().contains("ADDR_RESOLVED"), "{error}");
    assert_eq!(calls::destroyed(), ["queue pair", "identifier"]);
    connecting.try_finish().expect_err("finished");
    accepting.wait(Some(TIMEOUT)).expect_err("rejected");

    let qp = setup.qp();
    let external = setup.route().request(&qp, &params).expect("sent");
    drop(setup.request());
    external.wait(Some(TIMEOUT)).expect_err("rejected");

    // The last message of the handshake is a response for an external queue pair only.
    change_first(response, established, 0);
    let external = setup.route().request(&qp, &params).expect("sent");
    let accepting = setup.request().with_qp(setup.qp()).expect("INIT");
    let accepting = accepting.start(&params).expect("accepted");
    let error = external.wait(Some(TIMEOUT)).expect_err("not a response");
    assert!(error.to_string().contains("ESTABLISHED"), "{error}");
    drop(accepting);
}
