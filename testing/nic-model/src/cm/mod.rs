//! `/dev/infiniband/rdma_cm`: identifiers, their events, and connections over RoCE.
//!
//! The commands and their errors follow `drivers/infiniband/core/ucma.c` of the kernel, the states
//! of identifiers `cma.c`, and the states of connections `cm.c`. Messages are in a simple format of
//! this model (`message`).

#![allow(
    clippy::large_types_passed_by_value,
    reason = "there are few messages and events, and each is changed on its way"
)]

mod address;
mod commands;
mod connection;
mod event;
mod handshake;
mod message;
mod qp_attr;
mod query;
mod resolve;

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::abi::rdma_cm::EventResp;
use crate::errno::{Errno, Result};
use crate::network::service::Service;
use crate::nic::Shared;
use crate::table::Table;
use address::Address;
pub(crate) use commands::Command;
use connection::Connection;

/// An open `/dev/infiniband/rdma_cm`.
struct File {
    events: VecDeque<Event>,
    /// An eventfd that the program polls. It is readable while there are events.
    signal: OwnedFd,
}

struct Event {
    /// Identifier to which the event belongs.
    id: u32,
    /// New identifier of a connection request.
    request: Option<u32>,
    response: EventResp,
}

/// States of an identifier (`enum rdma_cm_state`). Addresses and routes are resolved at once, so
/// the states of the queries are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Bound,
    AddrResolved,
    RouteResolved,
    Connect,
    Disconnect,
    Listen,
}

/// An identifier: `struct ucma_context` and `struct rdma_id_private` of the kernel.
#[allow(
    clippy::struct_excessive_bools,
    reason = "they are independent options and facts"
)]
struct Id {
    file: u32,
    /// Value that the program finds in the events. 0 for a request that is not yet accepted.
    uid: u64,
    port_space: u16,
    qp_type: u8,
    state: State,
    source: Address,
    destination: Address,
    /// The port is reserved. Identifiers of requests share that of the listener.
    owns_port: bool,
    /// Keeps the port from other processes.
    service: Option<Arc<Service>>,
    has_device: bool,
    has_route: bool,
    reuse: bool,
    /// The identifier has addresses of one family only.
    only_family: Option<bool>,
    traffic_class: u8,
    ack_timeout: Option<u8>,
    /// Connection requests that may still be queued.
    backlog: u32,
    events_reported: u32,
    qpn: u32,
    srq: bool,
    /// Sequence number of the first packet that the queue pair expects.
    psn: u32,
    connection: Option<Connection>,
}

impl Id {
    fn new(file: u32, uid: u64, port_space: u16, qp_type: u8) -> Self {
        Self {
            file,
            uid,
            port_space,
            qp_type,
            state: State::Idle,
            source: Address::Unspecified,
            destination: Address::Unspecified,
            owns_port: false,
            service: None,
            has_device: false,
            has_route: false,
            reuse: false,
            only_family: None,
            traffic_class: 0,
            ack_timeout: None,
            backlog: 0,
            events_reported: 0,
            qpn: 0,
            srq: false,
            psn: random() & 0x00ff_ffff,
            connection: None,
        }
    }
}

/// Returns a number that differs between processes.
fn random() -> u32 {
    let state = std::collections::hash_map::RandomState::new();
    let hash = state.build_hasher().finish();
    u32::try_from(hash & 0xffff_ffff).expect("32 bits")
}

/// All identifiers of the process.
pub(crate) struct Cm {
    files: Table<File>,
    ids: Table<Id>,
    /// GUID of the device, in network byte order.
    guid: [u8; 8],
    /// Time of the next timer, in nanoseconds.
    next_timer: u64,
}

impl Cm {
    pub(crate) fn new(guid: [u8; 8]) -> Self {
        Self {
            files: Table::new(1 << 16),
            ids: Table::new(1 << 16),
            guid,
            next_timer: u64::MAX,
        }
    }

    /// Creates an open file with the descriptor that the program polls, and returns its number.
    pub(crate) fn open(&mut self, signal: OwnedFd) -> Result<u32> {
        self.files.insert(File {
            events: VecDeque::new(),
            signal,
        })
    }

    /// Destroys the identifiers of a closed file.
    pub(crate) fn close(&mut self, cx: &mut Shared, file: u32) {
        for id in self.ids.numbers() {
            if self.ids.get(id).is_some_and(|other| other.file == file) {
                self.remove_id(cx, id);
            }
        }
        self.files.remove(file);
    }

    /// Returns the number of descriptors that only the model uses.
    pub(crate) fn descriptors(&self) -> usize {
        self.files.iter().count()
    }

    /// Returns the number of identifiers that are bound to the device.
    pub(crate) fn count(&self) -> u32 {
        let bound = self.ids.iter().filter(|(_, id)| id.has_device);
        u32::try_from(bound.count()).unwrap_or(u32::MAX)
    }

    /// Returns an identifier of a file (`ucma_get_ctx`).
    fn id(&mut self, file: u32, number: u32) -> Result<&mut Id> {
        let id = self.ids.get_mut(number).ok_or(Errno::ENOENT)?;
        if id.file != file {
            return Err(Errno::EINVAL);
        }
        Ok(id)
    }

    /// Returns an identifier that is bound to the device (`ucma_get_ctx_dev`).
    fn bound_id(&mut self, file: u32, number: u32) -> Result<&mut Id> {
        let id = self.id(file, number)?;
        if !id.has_device {
            return Err(Errno::EINVAL);
        }
        Ok(id)
    }

    /// Destroys an identifier with its events. Returns the number of events that were reported.
    fn remove_id(&mut self, cx: &mut Shared, number: u32) -> u32 {
        self.close_connection(cx, number);
        let Some(id) = self.ids.remove(number) else {
            return 0;
        };
        for request in self.forget_events(id.file, number) {
            self.remove_id(cx, request);
        }
        id.events_reported
    }
}
