//! The order in which rdmacm destroys objects, and the calls that exclude each other, seen by
//! functions that replace those of libibverbs and librdmacm in this program. The kernel and the
//! model accept other orders too.
#![allow(unsafe_code, reason = "replaces functions of C libraries")]

use std::ffi::{CStr, c_int, c_void};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ibverbs::{Context, CqOptions, Device, ErrorKind, QpOptions, QueuePair, Rc};
use nic_model::{Link, Options};
use rdma_sys::{ibv_qp, rdma_cm_event, rdma_cm_id, rdma_event_channel};
use rdmacm::{ConnectParams, ConnectRequest, EventChannel, InProgress, Listener, Resolver, Route};

const TIMEOUT: Duration = Duration::from_secs(20);

/// The objects that were destroyed.
static DESTROYED: Mutex<Vec<&str>> = Mutex::new(Vec::new());
/// A thread resolves an address.
static RESOLVES: AtomicBool = AtomicBool::new(false);
/// Number of events that were read meanwhile.
static READ_MEANWHILE: AtomicU32 = AtomicU32::new(0);

/// Returns the function that the one of this program replaces.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with NUL.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    assert!(!next.is_null(), "{name:?}");
    next
}

fn destroyed(object: &'static str) {
    let mut list = DESTROYED.lock().unwrap_or_else(PoisonError::into_inner);
    list.push(object);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    destroyed("queue pair");
    // SAFETY: the function of this name has this type, and its caller keeps its contract.
    unsafe {
        let next: unsafe extern "C" fn(*mut ibv_qp) -> c_int =
            std::mem::transmute(next(c"ibv_destroy_qp"));
        next(qp)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    destroyed("identifier");
    // SAFETY: as above.
    unsafe {
        let next: unsafe extern "C" fn(*mut rdma_cm_id) -> c_int =
            std::mem::transmute(next(c"rdma_destroy_id"));
        next(id)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    source: *mut libc::sockaddr,
    destination: *mut libc::sockaddr,
    timeout: c_int,
) -> c_int {
    type Resolve = unsafe extern "C" fn(
        *mut rdma_cm_id,
        *mut libc::sockaddr,
        *mut libc::sockaddr,
        c_int,
    ) -> c_int;
    RESOLVES.store(true, Ordering::SeqCst);
    // SAFETY: as above.
    let returned = unsafe {
        let next: Resolve = std::mem::transmute(next(c"rdma_resolve_addr"));
        next(id, source, destination, timeout)
    };
    // Other threads have the time to read the event.
    thread::sleep(Duration::from_millis(50));
    RESOLVES.store(false, Ordering::SeqCst);
    returned
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    READ_MEANWHILE.fetch_add(RESOLVES.load(Ordering::SeqCst).into(), Ordering::SeqCst);
    // SAFETY: as above.
    unsafe {
        let next: unsafe extern "C" fn(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int =
            std::mem::transmute(next(c"rdma_get_cm_event"));
        next(channel, event)
    }
}

/// The device, and a listener. The tests take turns, because they share the lists above.
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
        let device = Device::by_name("mlx5_0").expect("mlx5_0");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            context: device.open().expect("open"),
            listener: Listener::bind(address, 4).expect("listener"),
            _alone: alone,
        }
    }

    fn qp(&self) -> QueuePair<Rc> {
        let pd = self.context.alloc_pd().expect("domain");
        let cq = self.context.create_cq(CqOptions::new().depth(16));
        let cq = cq.expect("completion queue");
        pd.create_qp::<Rc>(&cq, &cq, QpOptions::new()).expect("qp")
    }

    fn route(&self) -> Route {
        let resolver = Resolver::new(self.listener.local_addr()).timeout(TIMEOUT);
        resolver.resolve().expect("route")
    }

    fn request(&self) -> ConnectRequest {
        let request = self.listener.next_request(Some(TIMEOUT)).expect("accept");
        request.expect("in time")
    }
}

/// Drops a value that owns one queue pair and its identifier.
fn check_order<T>(what: &str, value: T, end: impl FnOnce(T)) {
    DESTROYED.lock().expect("no panic").clear();
    end(value);
    let destroyed = std::mem::take(&mut *DESTROYED.lock().expect("no panic"));
    assert_eq!(destroyed, ["queue pair", "identifier"], "{what}");
}

#[test]
fn a_queue_pair_is_destroyed_before_its_identifier() {
    let setup = Setup::new();
    let params = ConnectParams::new();
    let ready = || setup.route().with_qp(setup.qp()).expect("INIT");
    let request = || setup.request().with_qp(setup.qp()).expect("INIT");
    check_order("a route", ready(), drop);

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

/// librdmacm writes the addresses of an identifier in both calls.
#[test]
fn no_event_is_read_while_an_address_is_resolved() {
    let setup = Setup::new();
    let channel = EventChannel::create().expect("channel");
    let done = AtomicBool::new(false);
    READ_MEANWHILE.store(0, Ordering::SeqCst);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let _ = channel.try_next();
            }
        });
        for _ in 0..3 {
            let resolver = Resolver::new(setup.listener.local_addr()).timeout(TIMEOUT);
            let resolving = resolver.channel(&channel).start().expect("started");
            assert!(format!("{resolving:?}").contains("Resolving"));
            drop(resolving.wait(Some(TIMEOUT)).expect("resolved"));
        }
        done.store(true, Ordering::SeqCst);
    });
    assert_eq!(READ_MEANWHILE.load(Ordering::SeqCst), 0);
}
