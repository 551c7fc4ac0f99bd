//! Helpers of the device tests: the devices, and pairs of connected queue pairs.

pub(crate) mod table;

use std::time::{Duration, Instant};
use std::vec;

use ibverbs::{
    AccessFlags, CompletionQueue, ConnectedDuplexTransport, Context, CqOptions, Direction,
    DuplexTransport, Error, ErrorKind, LinkLayer, ProtectionDomain, QpOptions, QueuePair, Rc,
    RcPath, Retired, WcStatus, device::TransportType,
};

pub(crate) use test_support::lab::kernel_is_at_least;
pub(crate) use test_support::leak_check::{LeakCheck, forget};

/// All remote access rights.
pub(crate) const REMOTE_ACCESS: AccessFlags = AccessFlags::REMOTE_READ
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_ATOMIC);

/// Verbs that some devices do not support, as the table in `docs/drivers.md` names them.
#[allow(dead_code, reason = "the tests of some verbs need a feature")]
pub(crate) mod verb {
    pub(crate) const RC: &str = "`ibv_create_qp`: RC";
    pub(crate) const UC: &str = "`ibv_create_qp`: UC";
    pub(crate) const UD: &str = "`ibv_create_qp`: UD";
    pub(crate) const SRD: &str = "`efadv_create_qp_ex`: SRD";
    pub(crate) const DC: &str = "`mlx5dv_create_qp`: DC";
    pub(crate) const DC_STREAMS: &str = "`mlx5dv_create_qp`: DC streams";
    pub(crate) const LEND: &str = "`mlx5dv_init_obj`";
    pub(crate) const ATOMIC_WRITE: &str = "`ibv_create_qp_ex`: ATOMIC_WRITE";
    pub(crate) const DEVICE_MEMORY: &str = "`ibv_alloc_dm`";
    pub(crate) const THREAD_DOMAINS: &str = "`ibv_alloc_td`";
    pub(crate) const SRQ: &str = "`ibv_create_srq`";
    pub(crate) const MULTICAST: &str = "`ibv_attach_mcast`";
    pub(crate) const REMOTE_WRITE: &str = "`ibv_reg_mr`: remote write";
    /// Not a verb: the port has a network interface and its addresses, unlike one of InfiniBand.
    pub(crate) const ETHERNET: &str = "Ethernet";
}

/// The devices of a test. Dropping this checks that no objects of them are left.
pub(crate) struct Devices {
    contexts: vec::IntoIter<Context>,
    _leak_check: LeakCheck,
}

impl Devices {
    fn new(open: impl FnOnce() -> Vec<Context>) -> Self {
        let leak_check = LeakCheck::new();
        Self {
            contexts: open().into_iter(),
            _leak_check: leak_check,
        }
    }
}

impl Iterator for Devices {
    type Item = Context;

    fn next(&mut self) -> Option<Context> {
        self.contexts.next()
    }
}

/// Opens all devices. Does not report them: a test may skip some.
pub(crate) fn devices() -> Devices {
    Devices::new(test_support::lab::devices)
}

/// Opens the devices that support these verbs and reports them.
pub(crate) fn devices_with(verbs: &[&str]) -> Devices {
    Devices::new(|| supporting(verbs))
}

/// Returns the devices that support these verbs and reports them. Those that do not are reported as
/// unsupported, with the first verb that they lack.
pub(crate) fn supporting(verbs: &[&str]) -> Vec<Context> {
    let rows = table::rows();
    let lacks = |context: &Context| {
        let verb = |verb: &&&str| {
            if **verb == verb::ETHERNET {
                return is_infiniband(context);
            }
            let row = rows.iter().find(|row| row.verb == **verb);
            row.expect("a verb of the table").support(context) != "yes"
        };
        verbs.iter().find(verb).copied()
    };
    let supports = |context: &Context| {
        let (name, missing) = (context.device_name(), lacks(context));
        if let Some(verb) = missing {
            println!("unsupported: {name} {verb}");
        } else {
            println!("device: {name}");
        }
        missing.is_none()
    };
    let all = test_support::lab::devices();
    all.into_iter().filter(supports).collect()
}

/// Returns the devices that can connect queue pairs without rdma_cm.
pub(crate) fn roce() -> impl Iterator<Item = Context> {
    roce_with(&[verb::RC])
}

/// Like [`roce`], with the devices that support other verbs.
pub(crate) fn roce_with(verbs: &[&str]) -> impl Iterator<Item = Context> + use<> {
    devices_with(verbs).filter(|one| !is_iwarp(one))
}

/// Returns the devices of [`roce`], each with options for the extended and for the classic verbs.
pub(crate) fn roce_paths() -> impl Iterator<Item = (Context, QpOptions)> {
    let paths = |context: Context| extended_and_classic().map(|path| (context.clone(), path));
    roce().flat_map(paths)
}

/// Connects two queue pairs for each of the [`roce_paths`].
pub(crate) fn pairs() -> impl Iterator<Item = Pair> {
    pairs_with(AccessFlags::empty())
}

/// Like [`pairs`], with remote access rights.
pub(crate) fn pairs_with(access: AccessFlags) -> impl Iterator<Item = Pair> {
    roce_paths().map(move |(context, options)| pair_with_access(&context, options, access))
}

/// Returns `true` if queue pairs of the device need rdma_cm to connect.
pub(crate) fn is_iwarp(context: &Context) -> bool {
    context.device().transport() == TransportType::IWARP
}

/// Returns `true` if port 1 of the device is one of InfiniBand, which has no network interface.
pub(crate) fn is_infiniband(context: &Context) -> bool {
    let port = context.query_port(1).expect("port 1");
    port.link_layer == LinkLayer::INFINIBAND
}

/// Returns `true` if the device is an EFA adapter or the model of one.
pub(crate) fn is_efa(context: &Context) -> bool {
    context.device_name().starts_with("efa")
}

/// Returns `true` if the device is a model of an adapter.
pub(crate) fn is_model(context: &Context) -> bool {
    is_mlx5(context) || is_efa(context)
}

/// Returns `true` if the device is an mlx5 adapter or the model of one.
pub(crate) fn is_mlx5(context: &Context) -> bool {
    context.device_name().starts_with("mlx5")
}

/// Runs `test` on every device.
pub(crate) fn for_each_device(test: impl Fn(&Context, &ProtectionDomain)) {
    for_each_device_with(&[], test);
}

/// Like [`for_each_device`], on the devices that support these verbs.
pub(crate) fn for_each_device_with(verbs: &[&str], test: impl Fn(&Context, &ProtectionDomain)) {
    for context in devices_with(verbs) {
        test(&context, &context.alloc_pd().expect("protection domain"));
    }
}

/// Creates a completion queue with the default options.
pub(crate) fn cq(context: &Context) -> CompletionQueue {
    let cq = context.create_cq(CqOptions::default());
    cq.expect("completion queue")
}

/// Creates a queue pair with the default options.
pub(crate) fn qp<T: DuplexTransport>(pd: &ProtectionDomain, cq: &CompletionQueue) -> QueuePair<T> {
    let qp = pd.create_qp(cq, cq, QpOptions::default());
    qp.expect("queue pair")
}

/// Asserts that the operation fails because the driver does not support it.
pub(crate) fn expect_unsupported<T>(result: Result<T, Error>) {
    let error = result.err().expect("not supported by this driver");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

/// Returns a path from the first address of port 1, with the MTU of the port.
pub(crate) fn path(context: &Context) -> RcPath {
    let port = context.query_port(1).expect("port 1");
    let gids = context.gids(1).expect("GID table");
    // The GID of an iWARP device is its MAC address, which can look like any kind of GID.
    let gid = gids
        .iter()
        .find(|entry| is_iwarp(context) || !entry.gid.is_link_local())
        .expect("a routable GID");
    RcPath::new(1, gid.index, port.active_mtu)
}

/// Connects two queue pairs of one device, which must be in RESET.
pub(crate) fn connect<T: ConnectedDuplexTransport>(
    a: &mut QueuePair<T>,
    b: &mut QueuePair<T>,
    path: &RcPath,
) {
    for qp in [&mut *a, &mut *b] {
        qp.init(path).expect("INIT state");
    }
    a.connect(path, &b.endpoint(path).expect("b"))
        .expect("a connects");
    b.connect(path, &a.endpoint(path).expect("a"))
        .expect("b connects");
}

pub(crate) struct Pair<T: ConnectedDuplexTransport = Rc> {
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) a: QueuePair<T>,
    pub(crate) b: QueuePair<T>,
}

/// Creates two connected queue pairs of one device.
pub(crate) fn pair(context: &Context, options: QpOptions) -> Pair {
    pair_with_access::<Rc>(context, options, AccessFlags::empty())
}

/// Like [`pair`], with transport `T` and remote access rights.
pub(crate) fn pair_with_access<T: ConnectedDuplexTransport>(
    context: &Context,
    options: QpOptions,
    access: AccessFlags,
) -> Pair<T> {
    let pd = context.alloc_pd().expect("protection domain");
    let cq = context
        .create_cq(CqOptions::new().depth(1024))
        .expect("completion queue");
    let mut a = pd.create_qp::<T>(&cq, &cq, options).expect("a");
    let mut b = pd.create_qp::<T>(&cq, &cq, options).expect("b");
    let path = path(context)
        // 67 ms. On a slow machine, a shorter timeout expires before the peer gets CPU time.
        .timeout(14)
        .retry_cnt(3)
        .max_rd_atomic(4)
        .max_dest_rd_atomic(4)
        .access(access);
    connect(&mut a, &mut b, &path);
    Pair { pd, cq, a, b }
}

impl<T: ConnectedDuplexTransport> Pair<T> {
    /// Polls until `count` requests have been retired, and returns them.
    pub(crate) fn retire(&mut self, count: usize) -> Vec<Retired> {
        let mut all = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(20);
        while all.len() < count {
            assert!(
                Instant::now() < deadline,
                "{} of {count} completions arrived",
                all.len()
            );
            for completion in self.cq.poll().expect("poll") {
                let qp = if completion.queue() == self.a.id() {
                    &mut self.a
                } else {
                    &mut self.b
                };
                all.push(qp.retire(completion).expect("in flight"));
            }
        }
        all
    }

    /// Like [`retire`](Self::retire), and returns the completion of a receive among them.
    pub(crate) fn retire_received(&mut self, count: usize) -> Retired {
        let mut all = self.retire(count).into_iter();
        all.find(|one| one.direction() == Direction::Recv)
            .expect("a receive")
    }

    /// Polls until a completion arrives that belongs to neither queue pair.
    pub(crate) fn retire_foreign(&mut self) -> WcStatus {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < deadline, "no completion arrived");
            if let Some(completion) = self.cq.poll().expect("poll").next() {
                let status = completion.status();
                self.b
                    .retire(completion)
                    .expect_err("not posted with `post_send`");
                return status;
            }
        }
    }
}

/// Calls `step` until it returns `true`.
pub(crate) fn until(what: &str, mut step: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !step() {
        assert!(Instant::now() < deadline, "{what}: nothing in 20 s");
    }
}

/// Returns options for the extended verbs and for the classic verbs.
pub(crate) fn extended_and_classic() -> [QpOptions; 2] {
    let options = QpOptions::new().max_inline_data(64);
    [options, options.classic_only(true)]
}

/// Returns `true` if the installed libraries have a function.
#[allow(unsafe_code)]
fn has_function(name: &std::ffi::CStr) -> bool {
    // SAFETY: the name ends with a NUL byte.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
}

/// Returns the version of the installed rdma-core, or an older one that lacks the same functions.
pub(crate) fn installed_version() -> u32 {
    [
        (c"ibv_create_comp_cntr", 65),
        (c"ibv_alloc_buf", 64),
        (c"ibv_query_port_speed", 62),
        (c"ibv_reg_mr_ex", 59),
    ]
    .into_iter()
    .find(|(name, _)| has_function(name))
    .map_or(44, |(_, version)| version)
}
