//! The buffer that libibumad exchanges with the kernel: a header followed by the datagram.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use rdma_sys::ib_user_mad;
use rdma_types::{Errno, Result};

use crate::address::Address;
use crate::convert::cause;
use crate::error::call_failed;
use crate::mad::{MAD_HEADER_LEN, MAD_LEN, Mad};

/// Bytes available for the datagram. An Omni-Path datagram has 2 KiB, and one that does not fit
/// would block the kernel's queue.
const DATA_LEN: usize = 2048;

/// The header and the datagram in one contiguous buffer, as libibumad requires.
#[repr(C)]
struct Buffer {
    header: ib_user_mad,
    data: [u8; DATA_LEN],
}

/// A received datagram, or a request that the kernel returned because no response arrived.
///
/// # Example
/// ```no_run
/// # fn f(agent: &ibumad::Agent) -> ibumad::Result<()> {
/// let limit = std::time::Duration::from_secs(1);
/// if let Some(received) = agent.recv(Some(limit))? {
///     match received.failure {
///         None => println!("{:?}", received.mad.attr()),
///         Some(errno) => println!("no response: {errno}"),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received {
    /// Number of the agent that the datagram is for.
    pub agent: u32,
    /// Cause of a returned request; `None` for a datagram from the network.
    pub failure: Option<Errno>,
    /// The datagram.
    pub mad: Mad,
    /// Source address of the datagram.
    pub from: Address,
}

impl Buffer {
    fn new() -> Self {
        Self {
            header: ib_user_mad::default(),
            data: [0; DATA_LEN],
        }
    }

    /// Returns a pointer to the whole buffer, for the C functions.
    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut *self).cast()
    }

    /// Returns a pointer to the datagram. It follows the header, whose length depends on the
    /// kernel's ABI version.
    fn mad(&mut self) -> *mut u8 {
        // SAFETY: the pointer is to the whole buffer. The function adds the header's length, which
        // is at most the size of `ib_user_mad`, so at least DATA_LEN bytes of the buffer follow.
        unsafe { rdma_sys::umad_get_mad(self.as_ptr()).cast() }
    }
}

/// Sends a datagram. The kernel waits `timeout_ms` for a response; 0 means that none is expected.
pub(crate) fn send(
    fd: c_int,
    agent: c_int,
    mad: &Mad,
    to: &Address,
    timeout_ms: c_int,
    retries: c_int,
) -> Result<()> {
    let mut buffer = Buffer::new();
    buffer.header.addr = to.to_raw();
    let data = buffer.mad();
    // SAFETY: `data` points to at least DATA_LEN bytes of the local buffer, more than MAD_LEN, and
    // no reference to the buffer exists.
    unsafe { data.copy_from_nonoverlapping(mad.as_bytes().as_ptr(), MAD_LEN) };
    // SAFETY: the buffer contains the header and MAD_LEN bytes after it. The call reads them and
    // writes only to the header.
    let returned = unsafe {
        rdma_sys::umad_send(
            fd,
            agent,
            buffer.as_ptr(),
            MAD_LEN.try_into().unwrap_or(c_int::MAX),
            timeout_ms,
            retries,
        )
    };
    if returned < 0 {
        let detail = format!("{} to {to}", mad.class());
        return Err(call_failed("umad_send", cause(returned), detail));
    }
    Ok(())
}

/// Receives a datagram. Waits for at most `timeout_ms`; 0 does not wait, a negative value waits
/// without limit. Returns `None` after the time limit, a signal or a truncated datagram.
pub(crate) fn receive(fd: c_int, timeout_ms: c_int) -> Result<Option<Received>> {
    let mut buffer = Buffer::new();
    let mut len = c_int::try_from(DATA_LEN).unwrap_or(c_int::MAX);
    // SAFETY: the buffer has the header and `len` bytes after it.
    let returned = unsafe { rdma_sys::umad_recv(fd, buffer.as_ptr(), &raw mut len, timeout_ms) };
    if returned < 0 {
        return match cause(returned) {
            Errno(libc::ETIMEDOUT | libc::EAGAIN | libc::EINTR) => Ok(None),
            errno => Err(call_failed("umad_recv", errno, "management datagram")),
        };
    }
    // SAFETY: the buffer starts with the header, which the call filled.
    let status = unsafe { rdma_sys::umad_status(buffer.as_ptr()) };
    // A short datagram (the simulator's subnet administration sends such) is extended with the
    // buffer's zeros. One without a complete header is ignored rather than reported, because any
    // host can send it.
    if usize::try_from(len).unwrap_or(0) < MAD_HEADER_LEN {
        return Ok(None);
    }
    let data = buffer.mad();
    // SAFETY: `data` points to at least DATA_LEN initialized bytes of the local buffer, more than
    // MAD_LEN, and no reference to them exists.
    let bytes = unsafe { data.cast::<[u8; MAD_LEN]>().read_unaligned() };
    Ok(Some(Received {
        agent: u32::try_from(returned).unwrap_or(u32::MAX),
        failure: (status != 0).then_some(Errno(status)),
        mad: Mad::from(bytes),
        from: Address::from_raw(&buffer.header.addr),
    }))
}
