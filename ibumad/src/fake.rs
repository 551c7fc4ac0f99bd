//! A port for unit tests: a socket in the place of the kernel's device. libibumad reads and writes
//! it like the device.

#![allow(unsafe_code)]

use std::mem::offset_of;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use rdma_sys::ib_user_mad;

use crate::address::Address;
use crate::mad::{MAD_LEN, Mad};
use crate::port::Port;

/// The kernel's end of a port.
pub(crate) struct Kernel(UnixDatagram);

/// A datagram that the port has sent.
pub(crate) struct Sent {
    pub(crate) agent: u32,
    pub(crate) timeout_ms: u32,
    pub(crate) retries: u32,
    pub(crate) to: Address,
    pub(crate) mad: Mad,
}

/// Returns a new port and its other end.
pub(crate) fn port() -> (Port, Kernel) {
    let (user, kernel) = UnixDatagram::pair().expect("sockets");
    for socket in [&user, &kernel] {
        socket.set_nonblocking(true).expect("a socket");
    }
    let port = Port::from_descriptor(OwnedFd::from(user).into_raw_fd());
    (port, Kernel(kernel))
}

/// Returns the length of the header.
fn header_len() -> usize {
    // SAFETY: the function has no preconditions.
    unsafe { rdma_sys::umad_size() }
}

impl Kernel {
    /// Passes a datagram to the port, from LID 9.
    pub(crate) fn pass(&self, agent: u32, status: u32, datagram: &[u8]) {
        let mut bytes = vec![0; header_len()];
        bytes[offset_of!(ib_user_mad, agent_id)..][..4].copy_from_slice(&agent.to_ne_bytes());
        bytes[offset_of!(ib_user_mad, status)..][..4].copy_from_slice(&status.to_ne_bytes());
        let lid = offset_of!(ib_user_mad, addr.lid);
        bytes[lid..lid + 2].copy_from_slice(&9_u16.to_be_bytes());
        bytes.extend_from_slice(datagram);
        self.pass_raw(&bytes);
    }

    /// Passes the response to a request with this transaction identifier, as changed by `change`.
    pub(crate) fn respond(
        &self,
        agent: u32,
        id: u32,
        request: &Mad,
        change: impl FnOnce(&mut Mad),
    ) {
        let mut response = request.response();
        response.set_low_transaction_id(id);
        change(&mut response);
        self.pass(agent, 0, response.as_bytes());
    }

    /// Passes bytes to the port. They are lost if its queue is full.
    pub(crate) fn pass_raw(&self, bytes: &[u8]) {
        let _ = self.0.send(bytes);
    }

    /// Returns `true` if the port is open.
    pub(crate) fn is_open(&self) -> bool {
        self.0.send(&[]).is_ok()
    }

    /// Returns the next datagram that the port has sent.
    pub(crate) fn sent(&self) -> Option<Sent> {
        let mut bytes = [0; 512];
        let len = self.0.recv(&mut bytes).ok()?;
        assert_eq!(len, header_len() + MAD_LEN);
        // SAFETY: the header is plain data, and the array is longer.
        let header = unsafe { bytes.as_ptr().cast::<ib_user_mad>().read_unaligned() };
        Some(Sent {
            agent: header.agent_id,
            timeout_ms: header.timeout_ms,
            retries: header.retries,
            to: Address::from_raw(&header.addr),
            mad: Mad::from_bytes(&bytes[header_len()..]).expect("a datagram"),
        })
    }
}

/// Returns a descriptor that is not open.
pub(crate) fn closed_port() -> Port {
    // Such numbers exceed the limit of every process.
    Port::from_descriptor(i32::MAX)
}
