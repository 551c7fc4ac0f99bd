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

    /// Receives a datagram. Returns the agent or an error, and the length of the datagram.
    fn receive(&mut self, fd: c_int, timeout_ms: c_int) -> (c_int, c_int) {
        let mut len = c_int::try_from(DATA_LEN).unwrap_or(c_int::MAX);
        // SAFETY: the buffer has the header and `len` bytes after it.
        let agent = unsafe { rdma_sys::umad_recv(fd, self.as_ptr(), &raw mut len, timeout_ms) };
        (agent, len)
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
    let (returned, len) = buffer.receive(fd, timeout_ms);
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

#[cfg(test)]
mod tests {
    use std::os::unix::thread::JoinHandleExt;

    use super::*;
    use crate::fake;

    /// Passes a datagram to a port, and receives it.
    fn pass(datagram: &[u8]) -> Option<Received> {
        let (port, kernel) = fake::port();
        kernel.pass(0, 0, datagram);
        receive(port.fd(), 0).expect("an open port")
    }

    #[test]
    fn a_datagram_without_a_complete_header_is_ignored() {
        for len in 0..MAD_HEADER_LEN {
            assert!(pass(&[7; 256][..len]).is_none(), "{len} bytes");
        }
        let (port, kernel) = fake::port();
        kernel.pass_raw(&[0; 7]);
        assert!(receive(port.fd(), 0).expect("an open port").is_none());
    }

    #[test]
    fn a_short_datagram_is_extended_with_zeros() {
        for len in [MAD_HEADER_LEN, 64, MAD_LEN, DATA_LEN] {
            let received = pass(&[7; DATA_LEN][..len]).expect("a header");
            let mut expected = [0; MAD_LEN];
            expected[..len.min(MAD_LEN)].fill(7);
            assert_eq!(received.mad.as_bytes(), &expected, "{len} bytes");
            assert_eq!((received.agent, received.failure), (0, None));
            assert_eq!(received.from.lid.0, 9);
        }
    }

    #[test]
    fn a_long_datagram_does_not_exceed_the_buffer() {
        #[repr(C)]
        struct Guarded {
            buffer: Buffer,
            behind: [u8; 4096],
        }
        let (port, kernel) = fake::port();
        kernel.pass(3, 0, &[7; 4 * DATA_LEN]);
        let mut guarded = Guarded {
            buffer: Buffer::new(),
            behind: [0; 4096],
        };
        let (agent, len) = guarded.buffer.receive(port.fd(), 0);
        assert_eq!((agent, len), (3, 2048));
        assert_eq!(guarded.behind, [0; 4096]);
    }

    #[test]
    fn a_returned_request_has_the_cause() {
        let (port, kernel) = fake::port();
        kernel.pass(3, libc::ETIMEDOUT.unsigned_abs(), &[7; MAD_LEN]);
        let received = receive(port.fd(), 0).expect("an open port");
        let received = received.expect("the request");
        assert_eq!(received.failure, Some(Errno(libc::ETIMEDOUT)));
        assert_eq!(received.agent, 3);
    }

    #[test]
    fn a_sent_datagram_has_its_address_and_time_limit() {
        let (port, kernel) = fake::port();
        let mad = Mad::from([7; MAD_LEN]);
        let to = Address::lid(rdma_types::Lid(4)).sl(2);
        send(port.fd(), 6, &mad, &to, 250, 2).expect("an open port");
        let sent = kernel.sent().expect("a datagram");
        assert_eq!((sent.agent, sent.timeout_ms, sent.retries), (6, 250, 2));
        assert_eq!((sent.to.lid, sent.to.qpn, sent.to.sl), (to.lid, 1, 2));
        assert!(sent.mad == mad);
    }

    #[test]
    fn a_signal_ends_the_wait() {
        extern "C" fn handle(_signal: c_int) {}
        let (port, _kernel) = fake::port();
        let handle: extern "C" fn(c_int) = handle;
        // SAFETY: the handler does nothing. No other test uses this signal.
        unsafe { libc::signal(libc::SIGUSR2, handle as libc::sighandler_t) };
        let waiting = std::thread::spawn(move || receive(port.fd(), -1));
        while !waiting.is_finished() {
            // SAFETY: the thread is not joined yet.
            unsafe { libc::pthread_kill(waiting.as_pthread_t(), libc::SIGUSR2) };
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let received = waiting.join().expect("no panic");
        assert!(received.expect("an open port").is_none());
    }

    #[test]
    fn errors_of_the_port_are_returned() {
        let port = fake::closed_port();
        let error = receive(port.fd(), 0).expect_err("not open");
        assert_eq!(
            (error.call(), error.errno()),
            ("umad_recv", Some(Errno(libc::EBADF)))
        );
        let (mad, to) = (Mad::from([0; MAD_LEN]), Address::lid(rdma_types::Lid(4)));
        let error = send(port.fd(), 0, &mad, &to, 0, 0).expect_err("not open");
        assert_eq!(error.errno(), Some(Errno(libc::EBADF)));
        assert!(error.message().contains("to LID 4"), "{error}");
    }
}
