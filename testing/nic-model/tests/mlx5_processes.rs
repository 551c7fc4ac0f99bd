//! Two processes, each with its own adapter, on the network between them.

use std::env;
use std::io::{BufRead, BufReader, Write, stderr, stdin, stdout};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use ibverbs::{
    AccessFlags, CompletionQueue, CqOptions, Device, Direction, Endpoint, GidIndex,
    ProtectionDomain, Psn, QpOptions, Qpn, QueuePair, Rc, RcPath, RemoteMemory, Retired,
    SharedRegion, WcStatus, wr,
};
use nic_model::Options;
use test_support as _;

/// Set in the process that the test starts.
const PEER: &str = "NIC_MODEL_TEST_PEER";
/// Time after which a process that has not finished aborts.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Size of the largest message, in bytes.
const LARGEST: usize = 100_000;
/// Atomic operations that one test executes.
const ADDITIONS: u64 = 504;
/// Atomic operations in flight.
const IN_FLIGHT: usize = 8;

/// Aborts the process if the result is not dropped within the time limit.
fn limit_time() -> Sender<()> {
    let (running, end) = mpsc::channel::<()>();
    thread::spawn(move || {
        if end.recv_timeout(TIME_LIMIT) == Err(RecvTimeoutError::Timeout) {
            // The test harness would keep what `eprintln` prints.
            let _ = writeln!(stderr(), "not finished after {TIME_LIMIT:?}");
            std::process::abort();
        }
    });
    running
}

struct End {
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    region: SharedRegion,
    pd: ProtectionDomain,
    path: RcPath,
    _running: Sender<()>,
}

impl End {
    fn open() -> Self {
        let running = limit_time();
        nic_model::start(Options::new()).expect("start of the model");
        let context = Device::by_name("mlx5_0")
            .and_then(|device| device.open())
            .expect("mlx5_0");
        let pd = context.alloc_pd().expect("protection domain");
        let cq = context
            .create_cq(CqOptions::default())
            .expect("completion queue");
        let mut qp = pd
            .create_qp::<Rc>(&cq, &cq, QpOptions::new().max_inline_data(64))
            .expect("queue pair");
        let access =
            AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let region = pd.shared(LARGEST, access).expect("region");
        let mtu = context.query_port(1).expect("port 1").active_mtu;
        let path = RcPath::new(1, GidIndex(0), mtu)
            .access(access)
            .max_rd_atomic(4)
            .max_dest_rd_atomic(4)
            .timeout(1)
            .retry_cnt(7);
        qp.init(&path).expect("INIT state");
        Self {
            qp,
            cq,
            region,
            pd,
            path,
            _running: running,
        }
    }

    /// Sends the endpoint and the region as a line, receives those of the peer, and connects.
    /// Returns the region of the peer.
    fn connect(&mut self, mut to: impl Write, mut from: impl BufRead) -> RemoteMemory {
        let own = self.qp.endpoint(&self.path).expect("endpoint");
        let region = self.region.remote();
        writeln!(to, "endpoint {} {} {region}", own.qpn.0, own.psn.0).expect("written");
        to.flush().expect("written");
        let mut line = String::new();
        while !line.contains("endpoint ") {
            line.clear();
            assert!(from.read_line(&mut line).expect("read") > 0, "no endpoint");
        }
        let (_, values) = line.split_once("endpoint ").expect("an endpoint");
        let values: Vec<&str> = values.split_whitespace().collect();
        let peer = Endpoint {
            qpn: Qpn(values[0].parse().expect("a number")),
            psn: Psn(values[1].parse().expect("a number")),
            ..own
        };
        assert_ne!(peer.qpn, own.qpn, "numbers are unique among processes");
        self.qp.connect(&self.path, &peer).expect("connected");
        values[2].parse().expect("a region")
    }

    fn post_recv(&mut self) {
        let buffer = self.pd.buf(LARGEST).expect("buffer");
        self.qp.post_recv(wr::recv(buffer)).expect("receive");
    }

    /// Retires `count` requests, or more if they completed at once.
    fn retire(&mut self, count: usize) -> Vec<Retired> {
        let mut all = Vec::new();
        while all.len() < count {
            for completion in self.cq.poll().expect("poll") {
                all.push(self.qp.retire(completion).expect("in flight"));
            }
            // The adapters need the processors.
            thread::sleep(Duration::from_micros(20));
        }
        all
    }
}

/// A process that runs one of these tests. It is killed at the end.
struct Peer(Child);

impl Peer {
    fn start(test: &str) -> Self {
        let child = Command::new(env::current_exe().expect("path of this program"))
            .args([test, "--exact", "--nocapture", "--ignored"])
            .env(PEER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        Self(child.expect("start of the peer"))
    }

    /// Connects a new queue pair to that of the peer.
    fn connect(&mut self) -> (End, RemoteMemory) {
        let mut end = End::open();
        let from = BufReader::new(self.0.stdout.take().expect("piped"));
        let to = self.0.stdin.take().expect("piped");
        let region = end.connect(to, from);
        (end, region)
    }

    fn kill(&mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("ended");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Echoes messages until it is killed.
#[test]
#[ignore = "started by the other tests"]
fn peer_that_echoes() {
    assert!(env::var_os(PEER).is_some(), "started by the other tests");
    let mut end = End::open();
    end.post_recv();
    end.connect(stdout(), stdin().lock());
    loop {
        for retired in end.retire(1) {
            retired.check().expect("success");
            if retired.direction() == Direction::Recv {
                end.post_recv();
                let message = retired.into_buf().expect("a buffer");
                end.qp.post_send(wr::send(message)).expect("send");
            }
        }
    }
}

#[test]
fn a_peer_echoes_and_then_dies() {
    let mut peer = Peer::start("peer_that_echoes");
    let (mut end, _) = peer.connect();
    for size in [1, 4096, LARGEST] {
        end.post_recv();
        let mut message = end.pd.buf(size).expect("buffer");
        for (byte, value) in message.iter_mut().zip((0..251).cycle()) {
            *byte = value;
        }
        end.qp.post_send(wr::send(message)).expect("send");
        for retired in end.retire(2) {
            retired.check().expect("success");
            if retired.direction() == Direction::Recv {
                let received = retired.into_buf().expect("a buffer");
                assert_eq!(received.len(), size);
                assert!(received.iter().copied().eq((0..251).cycle().take(size)));
            }
        }
    }
    peer.kill();
    end.qp.post_send(wr::send(wr::Inline(b"x"))).expect("send");
    assert_eq!(end.retire(1)[0].status(), WcStatus::RETRY_EXC_ERR);
}

#[test]
fn one_sided_operations_reach_a_peer() {
    let mut peer = Peer::start("peer_that_echoes");
    let (mut end, remote) = peer.connect();
    let counter = remote.slice(0..8).expect("in range");
    for first in (0..ADDITIONS).step_by(IN_FLIGHT) {
        for _ in 0..IN_FLIGHT {
            let result = end.pd.buf(8).expect("buffer");
            end.qp
                .post_send(wr::fetch_add(result, counter, 1))
                .expect("atomic operation");
        }
        let retired = end.retire(IN_FLIGHT);
        for (before, retired) in (first..).zip(retired) {
            retired.check().expect("success");
            let result = retired.into_buf().expect("a buffer");
            assert_eq!(result[..], before.to_ne_bytes());
        }
    }
    let mut data = end.pd.buf(LARGEST - 8).expect("buffer");
    data.fill(7);
    let target = remote.slice(8..8 + LARGEST as u64 - 8).expect("in range");
    end.qp.post_send(wr::write(data, target)).expect("write");
    let buffer = end.pd.buf(LARGEST).expect("buffer");
    end.qp.post_send(wr::read(buffer, remote)).expect("read");
    let mut retired = end.retire(2);
    let read = retired.remove(1);
    read.check().expect("success");
    let read = read.into_buf().expect("a buffer");
    assert_eq!(read[..8], ADDITIONS.to_ne_bytes());
    assert!(read[8..].iter().all(|byte| *byte == 7));
    // The peer changed its own memory only.
    assert_eq!(end.region.load(0, Ordering::Acquire).expect("aligned"), 0);
}
