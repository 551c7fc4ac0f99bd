//! Peers: connected engines, and writes to them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use ibverbs::{Endpoint, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::connection::{Connection, Job};
use crate::failure::{Failure, lock};
use crate::immediates::{Immediates, Merge};
use crate::nic::{CompletionHandler, Nic};
use crate::region::{Region, RemoteRegion};
use crate::shared::Shared;
use crate::stripe::{Span, distribute};
use crate::transfer::{Progress, Transfer};

/// The addresses of the queue pairs that an engine has created for one peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerAddress {
    /// The queue pairs. Each is connected to the one with the same index at the other side.
    pub queue_pairs: Vec<QueuePairAddress>,
}

/// The address of one queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairAddress {
    /// Index of its device in the engine, which selects the key of a region.
    pub device: usize,
    /// Its address.
    pub endpoint: Endpoint,
    /// MTU of its port, as `enum ibv_mtu`.
    pub mtu: u32,
}

/// Queue pairs that are not connected yet ([`Engine::new_peer`](crate::Engine::new_peer)).
pub struct PendingPeer {
    shared: Arc<Shared>,
    connections: Vec<Connection>,
    address: PeerAddress,
}

impl PendingPeer {
    pub(crate) fn create(shared: &Arc<Shared>) -> Result<Self> {
        let (mut connections, mut columns) = (Vec::new(), Vec::new());
        for (device, nic) in shared.nics.iter().enumerate() {
            let (cq, queues) = nic.create_queues()?;
            let address = |queue: &crate::connection::Queue| {
                Ok(QueuePairAddress {
                    device,
                    endpoint: queue.endpoint()?,
                    mtu: queue.mtu(),
                })
            };
            columns.push(queues.iter().map(address).collect::<Result<Vec<_>>>()?);
            connections.push(Connection::new(cq, queues));
        }
        // The devices in turn, so that few pieces use all of them.
        let rows = 0..shared.options.queue_pairs;
        let queue_pairs = rows
            .flat_map(|row| columns.iter().map(move |column| column[row]))
            .collect();
        Ok(Self {
            shared: Arc::clone(shared),
            connections,
            address: PeerAddress { queue_pairs },
        })
    }

    /// Returns the address to send to the peer. It is valid for one peer.
    pub fn address(&self) -> &PeerAddress {
        &self.address
    }

    /// Connects to the peer with this address. Its engine must do the same with the address of this
    /// side. Writes can begin when both sides are connected.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidInput`] if the peer has another number of queue pairs.
    /// - Those of [`QueuePair::connect`](ibverbs::QueuePair::connect).
    pub fn connect(self, peer: &PeerAddress) -> Result<Peer> {
        let (ours, theirs) = (self.address.queue_pairs.len(), peer.queue_pairs.len());
        if ours != theirs {
            let what = format!("this side has {ours} queue pairs, and the peer has {theirs}");
            return Err(
                Error::new(ErrorKind::InvalidInput, "connect", what).with_help(
                    "choose EngineOptions::queue_pairs so that devices × queue pairs are equal",
                ),
            );
        }
        let devices = self.connections.len();
        for (number, remote) in peer.queue_pairs.iter().enumerate() {
            let connection = &self.connections[number % devices];
            connection.connect(number / devices, &remote.endpoint, remote.mtu)?;
        }
        let inner = Arc::new(PeerInner {
            nics: self.shared.nics.clone(),
            connections: self.connections,
            remote_devices: peer.queue_pairs.iter().map(|pair| pair.device).collect(),
            order: Mutex::new(0),
            merge: Mutex::new(Merge::new(ours)),
            immediates: Arc::clone(&self.shared.immediates),
            failure: OnceLock::new(),
        });
        for (nic, connection) in inner.nics.iter().zip(&inner.connections) {
            let peer: Weak<PeerInner> = Arc::downgrade(&inner);
            nic.add(connection, peer);
        }
        // For what arrived before the thread knew the peer.
        (0..devices).for_each(|device| inner.poll(device));
        Ok(Peer(Arc::new(Handle {
            inner,
            shared: self.shared,
        })))
    }
}

impl fmt::Debug for PendingPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingPeer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// A connected engine. Clones refer to the same connection, which ends when the last one is
/// dropped.
#[derive(Clone)]
pub struct Peer(Arc<Handle>);

/// The handle of the program. The threads of the engine have no handle, so dropping the last one
/// destroys the queue pairs before it returns.
struct Handle {
    inner: Arc<PeerInner>,
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inner.disconnect(&dropped());
    }
}

/// The connection to a peer.
pub(crate) struct PeerInner {
    nics: Vec<Arc<Nic>>,
    /// One for each device.
    connections: Vec<Connection>,
    /// Index of the peer's device for each queue pair.
    remote_devices: Vec<usize>,
    /// Locked while a transfer is submitted, so that the immediates of two transfers have the same
    /// order on all queue pairs. The value is the queue pair that the next transfer begins with.
    order: Mutex<usize>,
    merge: Mutex<Merge>,
    immediates: Arc<Immediates>,
    /// The reason why the peer was disconnected.
    failure: OnceLock<Failure>,
}

/// A checked write to one peer that was not submitted yet.
pub(crate) struct Write<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) remote: &'a RemoteRegion,
    pub(crate) spans: &'a [Span],
}

impl Peer {
    /// Writes ranges of `region` to `remote`. With an immediate, the peer counts the transfer when
    /// all bytes have arrived ([`Engine::imm_counter`](crate::Engine::imm_counter)).
    ///
    /// A transfer without bytes is allowed, for example to deliver an immediate alone. Transfers
    /// with the same immediate are counted in the order in which they were submitted. Their bytes
    /// can arrive in any order.
    ///
    /// # Errors
    /// Nothing was written then:
    /// - [`ErrorKind::InvalidInput`]: a range is out of bounds, or `remote` does not belong to the
    ///   engine of the peer.
    /// - [`ErrorKind::Mismatch`]: `region` belongs to another engine.
    /// - The reason of the disconnection if the peer was disconnected.
    pub fn write(
        &self,
        region: &Region,
        remote: &RemoteRegion,
        spans: &[Span],
        imm: Option<u32>,
    ) -> Result<Transfer> {
        let write = Write {
            peer: self,
            remote,
            spans,
        };
        submit(&[write], region, imm)
    }

    /// Destroys the queue pairs, which ends the access of the device to the memory of all transfers
    /// to the peer. These transfers fail.
    pub fn disconnect(&self) {
        self.0.inner.disconnect(&Failure::new(
            ErrorKind::Disconnected,
            "this side has disconnected the peer",
        ));
    }

    /// Returns `false` if the peer was disconnected, by this side or because a transfer failed.
    pub fn is_connected(&self) -> bool {
        self.0.inner.failure.get().is_none()
    }
}

/// Submits writes to several peers as one transfer. Nothing is written if one of them is invalid.
pub(crate) fn submit(writes: &[Write<'_>], region: &Region, imm: Option<u32>) -> Result<Transfer> {
    for write in writes {
        write.check(region)?;
    }
    let shares: Vec<_> = writes.iter().map(Write::shares).collect();
    let is_part = |share: &&VecDeque<Span>| imm.is_some() || !share.is_empty();
    let progress = Progress::new(shares.iter().flatten().filter(is_part).count());
    for (write, shares) in writes.iter().zip(shares) {
        write.post(shares, region, imm, &progress);
    }
    Ok(Transfer::new(progress))
}

impl Write<'_> {
    fn check(&self, region: &Region) -> Result<()> {
        let Handle { inner, shared } = &*self.peer.0;
        if let Some(failure) = inner.failure.get() {
            return Err(failure.to_error("write"));
        }
        if region.engine != shared.id {
            let what = "the region belongs to another engine than the peer";
            return Err(Error::new(ErrorKind::Mismatch, "write", what));
        }
        let keys = self.remote.keys.len();
        if inner.remote_devices.iter().any(|&device| device >= keys) {
            let what = format!("the remote region has {keys} keys, less than the peer's devices");
            return Err(Error::new(ErrorKind::InvalidInput, "write", what));
        }
        let (source, target) = (region.len(), self.remote.len());
        match self
            .spans
            .iter()
            .find(|span| !span.is_within(source, target))
        {
            None => Ok(()),
            Some(span) => {
                let what = format!(
                    "{span:?} is out of bounds; the region has {source} bytes, the remote region \
                     {target}"
                );
                Err(Error::new(ErrorKind::InvalidInput, "write", what))
            }
        }
    }

    /// Divides the write among the queue pairs of the peer.
    fn shares(&self) -> Vec<VecDeque<Span>> {
        let Handle { inner, shared } = &*self.peer.0;
        let queues = inner.remote_devices.len();
        let mut next = lock(&inner.order);
        let shares = distribute(self.spans, shared.stripe, queues, *next);
        *next = (*next + 1) % queues;
        shares
    }

    fn post(
        &self,
        shares: Vec<VecDeque<Span>>,
        region: &Region,
        imm: Option<u32>,
        progress: &Arc<Progress>,
    ) {
        let inner = &self.peer.0.inner;
        let devices = inner.connections.len();
        let mut result = Ok(());
        let order = lock(&inner.order);
        for (number, spans) in shares.into_iter().enumerate() {
            if spans.is_empty() && imm.is_none() {
                continue;
            }
            let job = Job {
                region: region.registered[number % devices].clone(),
                remote: self.remote.keys[inner.remote_devices[number]],
                spans,
                imm,
                progress: Arc::clone(progress),
            };
            let connection = &inner.connections[number % devices];
            let failure = inner.failure.get().cloned().unwrap_or_else(dropped);
            result = result.and(connection.submit(number / devices, job, &failure));
        }
        drop(order);
        if let Err(error) = result {
            inner.disconnect(&Failure::from(&error));
        }
    }
}

impl PeerInner {
    fn process(&self, device: usize) -> Result<()> {
        let devices = self.connections.len();
        self.connections[device].poll(|queue, value| {
            let number = queue * devices + device;
            if lock(&self.merge).add(number, value)? {
                self.immediates.add(value)?;
            }
            Ok(())
        })
    }
}

impl CompletionHandler for PeerInner {
    fn poll(&self, device: usize) {
        if let Err(error) = self.process(device) {
            self.disconnect(&Failure::from(&error));
        }
    }

    fn disconnect(&self, reason: &Failure) {
        let reason = self.failure.get_or_init(|| reason.clone());
        for (device, nic) in self.nics.iter().enumerate() {
            // A further failure has no consequences.
            let _ = self.process(device);
            let connection = &self.connections[device];
            connection.destroy(reason);
            nic.remove(connection);
        }
    }
}

fn dropped() -> Failure {
    Failure::new(ErrorKind::Disconnected, "the peer was dropped")
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("queue_pairs", &self.0.inner.remote_devices.len())
            .field("is_connected", &self.is_connected())
            .finish_non_exhaustive()
    }
}
