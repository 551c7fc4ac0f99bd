//! One device of an engine, and the thread that processes its completions.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;

use ibverbs::device::TransportType;
use ibverbs::{
    AccessFlags, CompletionChannel, CqId, CqOptions, Device, Error, ErrorKind, GidQuery,
    ProtectionDomain, Psn, QpOptions, Rc, RcPath, Result, call_failed,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::connection::{Connection, Queue};
use crate::failure::{Failure, lock};
use crate::options::EngineOptions;

/// Access of peers to regions.
pub(crate) const ACCESS: AccessFlags = AccessFlags::REMOTE_WRITE;

/// A peer, as the threads of the devices use it.
pub(crate) trait CompletionHandler: Send + Sync {
    /// Processes the completions of one device. After a failure, the peer is disconnected.
    fn poll(&self, device: usize);

    /// Destroys the queue pairs on all devices. The first reason is kept. Completions that have
    /// already arrived still count.
    fn disconnect(&self, reason: &Failure);
}

/// An open device with the connections of all peers.
pub(crate) struct Nic {
    /// Number of the device in the engine.
    index: usize,
    pd: ProtectionDomain,
    channel: CompletionChannel,
    path: RcPath,
    max_message: usize,
    options: EngineOptions,
    peers: Mutex<HashMap<CqId, Weak<dyn CompletionHandler>>>,
    stopping: AtomicBool,
    /// Wakes the thread.
    waker: OwnedFd,
}

impl Nic {
    pub(crate) fn open(index: usize, name: &str, options: &EngineOptions) -> Result<Self> {
        let device = Device::by_name(name)?;
        if device.transport() != TransportType::IB {
            return Err(unsupported(&device));
        }
        let context = device.open()?;
        let port = context.query_port(options.port_num)?;
        let gid = context.select_gid(options.port_num, &GidQuery::default())?;
        let path = RcPath::new(options.port_num, gid.entry.index, port.active_mtu)
            .timeout(options.timeout)
            .retry_cnt(options.retry_cnt)
            .access(ACCESS);
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| from_rustix("eventfd", errno))?;
        Ok(Self {
            index,
            pd: context.alloc_pd()?,
            channel: context.create_comp_channel()?,
            path,
            max_message: usize::try_from(port.max_msg_sz).unwrap_or(usize::MAX),
            options: *options,
            peers: Mutex::default(),
            stopping: AtomicBool::new(false),
            waker,
        })
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Returns the maximum length of a message in bytes.
    pub(crate) fn max_message(&self) -> usize {
        self.max_message
    }

    /// Creates the queue pairs for one peer, in state INIT, and their completion queue.
    pub(crate) fn create_queues(&self) -> Result<(ibverbs::CompletionQueue, Vec<Queue>)> {
        let EngineOptions {
            queue_pairs,
            max_send_wr,
            max_recv_wr,
            ..
        } = self.options;
        let options = QpOptions::new()
            .max_send_wr(max_send_wr)
            .max_recv_wr(max_recv_wr);
        let entries = queue_pairs.saturating_mul(max_send_wr as usize + max_recv_wr as usize);
        let depth = u32::try_from(entries).unwrap_or(u32::MAX);
        let cq_options = CqOptions::new().depth(depth).channel(&self.channel);
        let mut cq = self.pd.context().create_cq(cq_options)?;
        cq.arm(false)?;
        let create = |_| {
            let qp = self.pd.create_qp::<Rc>(&cq, &cq, options)?;
            Queue::new(qp, self.path.psn(Psn::random()))
        };
        let queues = (0..queue_pairs).map(create).collect::<Result<_>>()?;
        Ok((cq, queues))
    }

    /// Lets the thread process the completions of a peer.
    pub(crate) fn add(&self, connection: &Connection, peer: Weak<dyn CompletionHandler>) {
        lock(&self.peers).insert(connection.cq_id(), peer);
    }

    /// Reverses [`add`](Self::add).
    pub(crate) fn remove(&self, connection: &Connection) {
        lock(&self.peers).remove(&connection.cq_id());
    }

    /// Starts the thread.
    pub(crate) fn start(self: &Arc<Self>) -> Result<thread::JoinHandle<()>> {
        let nic = Arc::clone(self);
        let name = format!("transfer {}", self.pd.context().device_name());
        let run = move || {
            if let Err(error) = nic.run() {
                // The device was removed.
                for peer in nic.all_peers() {
                    peer.disconnect(&Failure::from(&error));
                }
            }
        };
        thread::Builder::new()
            .name(name)
            .spawn(run)
            .map_err(|error| Error::new(ErrorKind::Os, "start a thread", error.to_string()))
    }

    /// Makes the thread end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        // Fails only if the counter is full. The thread is awake then.
        let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
    }

    /// Processes completions until [`stop`](Self::stop) is called.
    fn run(&self) -> Result<()> {
        while !self.stopping.load(Ordering::Acquire) {
            if self.options.busy_poll {
                for peer in self.all_peers() {
                    peer.poll(self.index);
                }
                thread::yield_now();
                while self.channel.try_get()?.is_some() {}
                continue;
            }
            self.wait_readable()?;
            while let Some(id) = self.channel.try_get()? {
                let peer = lock(&self.peers).get(&id).and_then(Weak::upgrade);
                if let Some(peer) = peer {
                    peer.poll(self.index);
                }
            }
        }
        Ok(())
    }

    fn all_peers(&self) -> Vec<Arc<dyn CompletionHandler>> {
        lock(&self.peers)
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Waits for an event of a completion queue, or until the thread must end.
    fn wait_readable(&self) -> Result<()> {
        let (channel, waker) = (self.channel.as_fd(), self.waker.as_fd());
        let mut fds = [channel, waker].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(from_rustix("poll", errno)),
        }
    }
}

fn unsupported(device: &Device) -> Error {
    let name = device.name();
    let what = if device.transport() == TransportType::IWARP {
        format!("{name} is iWARP, which has no RDMA writes with immediate data")
    } else {
        format!(
            "{name} ({}) has no reliable connections",
            device.transport()
        )
    };
    Error::new(ErrorKind::Unsupported, "open an engine", what)
        .with_help("use InfiniBand or RoCE devices")
}

fn from_rustix(call: &'static str, errno: rustix::io::Errno) -> Error {
    call_failed(call, ibverbs::Errno(errno.raw_os_error()), "")
}

impl fmt::Debug for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nic")
            .field("device", &self.pd.context().device_name())
            .finish_non_exhaustive()
    }
}
