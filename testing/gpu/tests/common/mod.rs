//! Connected queue pairs of the model of an adapter, and memory of a GPU that is registered with
//! it.

#![allow(unsafe_code, reason = "starts kernels")]
#![allow(dead_code, reason = "each test program uses its part")]

use std::time::{Duration, Instant};

use gpu_memory::{Gpu, GpuBuffer};
use gpu_tests::Cuda;
use gpu_tests::kernels::{self, WORD};
use ibverbs::{
    AccessFlags, CompletionQueue, CqOptions, Device, DeviceRegion, Held, ProtectionDomain,
    QpOptions, QueuePair, Rc, RcPath, RemoteMemory, Retired,
};

/// All remote access rights.
pub(crate) const ACCESS: AccessFlags = AccessFlags::REMOTE_READ
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_ATOMIC);

/// Number of requests of a send queue.
pub(crate) const SENDS: u32 = 64;

/// A queue pair with completion queues of its own.
pub(crate) struct End {
    pub(crate) sends: CompletionQueue,
    pub(crate) receives: CompletionQueue,
    pub(crate) qp: QueuePair<Rc>,
}

impl End {
    fn new(pd: &ProtectionDomain) -> Self {
        let queue = || {
            pd.context()
                .create_cq(CqOptions::new().depth(256))
                .expect("queue")
        };
        let (sends, receives) = (queue(), queue());
        let options = QpOptions::new()
            .max_send_wr(SENDS)
            .max_recv_wr(SENDS)
            .device_addresses(true);
        let qp = pd
            .create_qp::<Rc>(&sends, &receives, options)
            .expect("queue pair");
        Self {
            sends,
            receives,
            qp,
        }
    }

    /// Retires `count` requests that complete on `sends`, or receives.
    pub(crate) fn retire(&mut self, count: usize) -> Vec<Retired> {
        let mut all = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        while all.len() < count {
            assert!(
                Instant::now() < deadline,
                "{} of {count} completions",
                all.len()
            );
            for queue in [&mut self.sends, &mut self.receives] {
                for completion in queue.poll().expect("poll") {
                    all.push(self.qp.retire(completion).expect("in flight"));
                }
            }
        }
        all
    }
}

/// Returns two connected queue pairs of the model.
pub(crate) fn ends() -> [End; 2] {
    let context = Device::by_name("mlx5_0")
        .and_then(|device| device.open())
        .expect("mlx5_0");
    let pd = context.alloc_pd().expect("protection domain");
    let mut ends = [End::new(&pd), End::new(&pd)];
    let port = context.query_port(1).expect("port 1");
    let gids = context.gids(1).expect("GID table");
    let gid = gids
        .iter()
        .find(|entry| !entry.gid.is_link_local())
        .expect("a routable GID");
    let path = RcPath::new(1, gid.index, port.active_mtu).access(ACCESS);
    let [a, b] = &mut ends;
    for qp in [&mut a.qp, &mut b.qp] {
        qp.init(&path).expect("INIT state");
    }
    a.qp.connect(&path, &b.qp.endpoint(&path).expect("b"))
        .expect("connected");
    b.qp.connect(&path, &a.qp.endpoint(&path).expect("a"))
        .expect("connected");
    ends
}

/// Memory of a GPU that a queue pair uses.
pub(crate) struct Memory {
    pub(crate) buffer: GpuBuffer,
    pub(crate) region: DeviceRegion,
    pub(crate) held: Held<DeviceRegion>,
}

impl Memory {
    /// Allocates memory and registers it for a queue pair.
    pub(crate) fn new(gpu: &Gpu, qp: &mut QueuePair<Rc>, len: usize) -> Self {
        let buffer = gpu.alloc(len).expect("memory");
        let len = usize::try_from(buffer.len()).expect("64 bits");
        let region = qp
            .pd()
            .reg_dmabuf(buffer.dmabuf(), 0, len, ACCESS)
            .expect("region");
        let held = qp.hold(&region).expect("held");
        Self {
            buffer,
            region,
            held,
        }
    }

    pub(crate) fn remote(&self, start: u64, len: u64) -> RemoteMemory {
        let whole = self.region.remote().expect("remote access");
        whole.slice(start..start + len).expect("inside")
    }

    /// Fills the memory by a kernel. No request uses it.
    pub(crate) fn fill(&self, cuda: &Cuda, seed: u64) {
        // SAFETY: the tests fill memory when no request is in flight.
        unsafe { kernels::fill(cuda, self.buffer.address(), self.buffer.len() / WORD, seed) }
    }

    /// Compares words of the memory with the beginning of a pattern by a kernel.
    pub(crate) fn check(&self, cuda: &Cuda, start: u64, words: u64, seed: u64) {
        // SAFETY: the tests compare memory when no request is in flight.
        let mismatch = unsafe { kernels::check(cuda, self.buffer.address() + start, words, seed) };
        assert_eq!(
            mismatch, None,
            "word that differs, of {words} at {start}, pattern {seed}"
        );
    }

    pub(crate) fn read(&self, start: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.buffer.read(start, &mut bytes).expect("inside");
        bytes
    }

    pub(crate) fn word(&self, start: u64) -> u64 {
        u64::from_ne_bytes(self.read(start, 8).try_into().expect("8 bytes"))
    }
}
