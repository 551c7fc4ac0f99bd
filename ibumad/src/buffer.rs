//! The buffer that goes to and comes from the kernel: libibumad's header and a datagram behind it.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use rdma_sys::ib_user_mad;

use crate::address::Address;
use crate::convert::reason;
use crate::errno::Errno;
use crate::error::{Error, Result};
use crate::mad::{MAD_HEADER_LEN, MAD_LEN, Mad};

/// Room behind the header: a datagram of Omni-Path is 2 KiB, and one that does not fit would block
/// the kernel's queue for ever.
const ROOM: usize = 2048;

/// Header and datagram, as libibumad wants them: one piece of memory.
#[repr(C)]
struct Buffer {
    header: ib_user_mad,
    data: [u8; ROOM],
}

/// A datagram that came in, or a request of one's own that came back because no answer did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received {
    /// The agent that it is for.
    pub agent: u32,
    /// Why a request came back; `None` for a datagram of somebody else.
    pub failure: Option<Errno>,
    /// The datagram.
    pub mad: Mad,
    /// Where it came from.
    pub from: Address,
}

impl Buffer {
    fn new() -> Self {
        Self {
            header: ib_user_mad::default(),
            data: [0; ROOM],
        }
    }

    /// The whole buffer, as the C functions take it.
    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut *self).cast()
    }

    /// Where the datagram lies: behind the header, whose length depends on the kernel's age.
    fn mad(&mut self) -> *mut u8 {
        // SAFETY: the pointer is to the whole buffer; the function adds the header's length to it,
        // which is at most that of `ib_user_mad`, so that at least ROOM bytes of the buffer
        // follow.
        unsafe { rdma_sys::umad_get_mad(self.as_ptr()).cast() }
    }
}

/// Sends a datagram; the kernel waits `timeout_ms` for an answer, not at all when that is 0.
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
    let place = buffer.mad();
    // SAFETY: at least ROOM bytes of the buffer begin there, more than a datagram has; nobody else
    // refers to the buffer.
    unsafe { place.copy_from_nonoverlapping(mad.as_bytes().as_ptr(), MAD_LEN) };
    // SAFETY: the buffer has the header and MAD_LEN bytes behind it; the call only reads them, and
    // fills in the header's first fields.
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
        return Err(Error::of_call(
            "umad_send",
            reason(returned),
            format!("{} to {to}", mad.class()),
        ));
    }
    Ok(())
}

/// Takes what has come, or waits for it: `timeout_ms` 0 not at all, negative for ever. `None` when
/// nothing came, a signal did, or what is no datagram.
pub(crate) fn receive(fd: c_int, timeout_ms: c_int) -> Result<Option<Received>> {
    let mut buffer = Buffer::new();
    let mut len = c_int::try_from(ROOM).unwrap_or(c_int::MAX);
    // SAFETY: the buffer has the header and ROOM bytes behind it, as `len` says.
    let returned = unsafe { rdma_sys::umad_recv(fd, buffer.as_ptr(), &raw mut len, timeout_ms) };
    if returned < 0 {
        return match reason(returned) {
            Errno(libc::ETIMEDOUT | libc::EAGAIN | libc::EINTR) => Ok(None),
            errno => Err(Error::of_call("umad_recv", errno, "management datagram")),
        };
    }
    // SAFETY: the buffer that the call filled.
    let status = unsafe { rdma_sys::umad_status(buffer.as_ptr()) };
    // One that ends early (a simulated subnet administrator's do) goes on with the buffer's zeros;
    // without a whole header it is none. That is no reason for who waits to end: anybody may
    // have sent it.
    if usize::try_from(len).unwrap_or(0) < MAD_HEADER_LEN {
        return Ok(None);
    }
    let place = buffer.mad();
    // SAFETY: at least ROOM bytes of the buffer begin there, all initialised, and no reference to
    // them exists.
    let bytes = unsafe { place.cast::<[u8; MAD_LEN]>().read_unaligned() };
    Ok(Some(Received {
        agent: u32::try_from(returned).unwrap_or(u32::MAX),
        failure: (status != 0).then_some(Errno(status)),
        mad: Mad::from(bytes),
        from: Address::from_raw(&buffer.header.addr),
    }))
}
