//! An open port.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::buffer::{self, Received};
use crate::ca::{Ca, PortAttr, c_name};
use crate::convert::not_negative;
use crate::error::{Error, Result};
use crate::kind::ErrorKind;
use crate::leak;

/// libibumad keeps which kind of kernel it has found in a variable that every opening writes.
static OPENING: Mutex<()> = Mutex::new(());

/// An open port, through which datagrams go out and come in. Clones share it; it is closed with the
/// last of them and its agents.
///
/// All agents of a port share one queue of incoming datagrams. Who waits in several threads opens
/// the port several times.
///
/// # Example
/// ```no_run
/// use ibumad::{AgentOptions, Methods, Port, mad::MgmtClass};
/// let port = Port::open("mlx4_0", 1)?;
/// let server = port.register(AgentOptions {
///     methods: Methods::ALL,
///     ..AgentOptions::openib_ping()
/// })?;
/// # Ok::<(), ibumad::Error>(())
/// ```
#[derive(Clone)]
pub struct Port(Arc<Handle>);

struct Handle {
    fd: c_int,
    ca_name: String,
    port_num: u8,
}

impl Port {
    /// Opens a port of an adapter.
    ///
    /// # Errors
    /// - [`ErrorKind::PermissionDenied`]: no right to its device node;
    /// - [`ErrorKind::NotFound`], [`ErrorKind::InvalidInput`]: no such adapter or port, or the port
    ///   has no management device;
    /// - [`ErrorKind::Unsupported`]: the kernel has no management devices.
    ///
    /// # References
    /// [`umad_open_port(3)`](https://man7.org/linux/man-pages/man3/umad_open_port.3.html)
    pub fn open(ca_name: &str, port_num: u8) -> Result<Self> {
        const CALL: &str = "umad_open_port";
        let what = || format!("{ca_name} port {port_num}");
        let name = c_name(CALL, ca_name)?;
        // With the port 0 the library would choose one.
        let ca = Ca::by_name(ca_name)?;
        if !ca.ports.iter().any(|port| port.port_num == port_num) {
            let ports = ca
                .ports
                .iter()
                .map(|port| port.port_num.to_string())
                .collect::<Vec<_>>()
                .join(", ");
            return Err(Error::new(
                ErrorKind::NotFound,
                CALL,
                format!("{}: no such port", what()),
            )
            .with_hint(format!("it has {ports}")));
        }
        let guard = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a C string; the lock keeps openings apart.
        let fd = not_negative(CALL, what, || unsafe {
            rdma_sys::umad_open_port(name.as_ptr(), c_int::from(port_num))
        })?;
        drop(guard);
        Ok(Self(Arc::new(Handle {
            fd,
            ca_name: ca_name.to_owned(),
            port_num,
        })))
    }

    /// The adapter's name.
    pub fn ca_name(&self) -> &str {
        &self.0.ca_name
    }

    /// Its number.
    pub fn port_num(&self) -> u8 {
        self.0.port_num
    }

    /// What sysfs says of it now.
    ///
    /// # Errors
    /// Fails when the adapter is gone.
    pub fn attr(&self) -> Result<PortAttr> {
        let ca = Ca::by_name(self.ca_name())?;
        ca.ports
            .into_iter()
            .find(|port| port.port_num == self.port_num())
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::NotFound,
                    "umad_get_ca",
                    format!("{} port {}", self.ca_name(), self.port_num()),
                )
            })
    }

    /// Takes the next datagram for any agent of this opening, or waits for it, at most for
    /// `timeout` (for ever when `None`). `Ok(None)` when the time is over, or earlier when a
    /// signal or what is no datagram came.
    ///
    /// # Errors
    /// Fails when the device is gone.
    ///
    /// # References
    /// [`umad_recv(3)`](https://man7.org/linux/man-pages/man3/umad_recv.3.html)
    pub fn recv(&self, timeout: Option<Duration>) -> Result<Option<Received>> {
        buffer::receive(self.fd(), timeout.map_or(-1, millis))
    }

    pub(crate) fn fd(&self) -> c_int {
        self.0.fd
    }
}

/// A time in the library's unit, rounded up so that a short time is not none.
pub(crate) fn millis(time: Duration) -> c_int {
    c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
}

impl AsFd for Port {
    /// Readable when a datagram can be received.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open until the handle is dropped, which the borrow prevents.
        unsafe { BorrowedFd::borrow_raw(self.0.fd) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: opened by this handle and closed once: agents, which use it, keep the handle
        // alive.
        if unsafe { rdma_sys::umad_close_port(self.fd) } != 0 {
            leak::count();
        }
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("ca_name", &self.0.ca_name)
            .field("port_num", &self.0.port_num)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up() {
        assert_eq!(millis(Duration::ZERO), 0);
        assert_eq!(millis(Duration::from_micros(1)), 1);
        assert_eq!(millis(Duration::from_millis(7)), 7);
        assert_eq!(millis(Duration::MAX), c_int::MAX);
    }

    #[test]
    fn an_adapter_that_is_not_there_is_not_found() {
        let error = Port::open("no_such_ca", 1).expect_err("none of that name");
        assert!(
            error.to_string().starts_with("umad_get_ca: no_such_ca"),
            "{error}"
        );
    }
}
