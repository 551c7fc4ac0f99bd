//! Open ports.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdma_types::{Error, ErrorKind, Result};

use crate::buffer::{self, Received};
use crate::ca::{Ca, PortAttr, to_c_name};
use crate::convert::not_negative;

/// Serializes calls of `umad_open_port`: each writes the ABI version that it found to a global
/// variable of libibumad.
static OPEN_LOCK: Mutex<()> = Mutex::new(());

/// An open port, which sends and receives datagrams. Clones share it. It is closed when the last
/// clone and the last agent registered at it are dropped.
///
/// All agents of a port share one queue of received datagrams. To receive in several threads, open
/// the port several times.
///
/// # Example
/// ```no_run
/// use ibumad::{AgentOptions, Methods, Port, mad::MgmtClass};
/// let port = Port::open("mlx4_0", 1)?;
/// let server = port.register(AgentOptions::openib_ping().methods(Methods::ALL))?;
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
    /// - [`ErrorKind::PermissionDenied`]: the caller may not access the port's device node;
    /// - [`ErrorKind::NotFound`]: there is no such adapter or port;
    /// - [`ErrorKind::InvalidInput`]: the name cannot be an adapter's, or the port has no
    ///   management device;
    /// - [`ErrorKind::Unsupported`]: the kernel has no management devices.
    #[doc(alias = "umad_open_port")]
    pub fn open(ca_name: &str, port_num: u8) -> Result<Self> {
        const CALL: &str = "umad_open_port";
        let detail = || format!("{ca_name} port {port_num}");
        let name = to_c_name(CALL, ca_name)?;
        // Checked here because the library replaces port 0 by a port of its choice.
        let ca = Ca::by_name(ca_name)?;
        if !ca.ports.iter().any(|port| port.port_num == port_num) {
            let numbers = ca.ports.iter().map(|port| port.port_num.to_string());
            let help = format!(
                "available ports: {}",
                numbers.collect::<Vec<_>>().join(", ")
            );
            let detail = format!("{}: no such port", detail());
            return Err(Error::new(ErrorKind::NotFound, CALL, detail).with_help(help));
        }
        let guard = OPEN_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `name` is a C string; the lock serializes the calls.
        let fd = not_negative(CALL, detail, || unsafe {
            rdma_sys::umad_open_port(name.as_ptr(), c_int::from(port_num))
        })?;
        drop(guard);
        Ok(Self(Arc::new(Handle {
            fd,
            ca_name: ca_name.to_owned(),
            port_num,
        })))
    }

    /// Returns the name of the adapter.
    pub fn ca_name(&self) -> &str {
        &self.0.ca_name
    }

    /// Returns the port number.
    pub fn port_num(&self) -> u8 {
        self.0.port_num
    }

    /// Reads the current attributes of the port from sysfs.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]: the adapter or the port no longer exists.
    pub fn attr(&self) -> Result<PortAttr> {
        let ca = Ca::by_name(self.ca_name())?;
        ca.ports
            .into_iter()
            .find(|port| port.port_num == self.port_num())
            .ok_or_else(|| {
                let detail = format!("{} port {}: no such port", self.ca_name(), self.port_num());
                Error::new(ErrorKind::NotFound, "umad_get_ca", detail)
            })
    }

    /// Receives the next datagram for any agent that was registered at this port. Waits for at most
    /// `timeout`, or without limit if it is `None`.
    ///
    /// Returns `Ok(None)` when the time is over. It may do so earlier, after a signal or a
    /// truncated datagram.
    ///
    /// # Errors
    /// Fails if the device was removed.
    #[doc(alias = "umad_recv")]
    pub fn recv(&self, timeout: Option<Duration>) -> Result<Option<Received>> {
        buffer::receive(self.fd(), timeout.map_or(-1, to_millis))
    }

    pub(crate) fn fd(&self) -> c_int {
        self.0.fd
    }
}

#[cfg(test)]
impl Port {
    /// Returns a port with this descriptor, which it closes.
    pub(crate) fn from_descriptor(fd: c_int) -> Self {
        let ca_name = "fake0".to_owned();
        Self(Arc::new(Handle {
            fd,
            ca_name,
            port_num: 3,
        }))
    }
}

/// Converts a time to milliseconds, rounded up so that a short time does not become 0.
pub(crate) fn to_millis(time: Duration) -> c_int {
    c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
}

impl AsFd for Port {
    /// Returns a descriptor that is readable when a datagram can be received.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the handle keeps the descriptor open, and the borrow keeps the handle.
        unsafe { BorrowedFd::borrow_raw(self.0.fd) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: this handle opened the descriptor and closes it only here. Agents, which use the
        // descriptor, keep the handle alive.
        if unsafe { rdma_sys::umad_close_port(self.fd) } != 0 {
            rdma_types::count_leaked_object();
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
    use std::os::fd::AsRawFd;
    use std::thread;

    use super::*;
    use crate::fake;

    #[test]
    fn a_port_is_closed_with_its_last_clone() {
        let (port, kernel) = fake::port();
        assert_eq!((port.ca_name(), port.port_num()), ("fake0", 3));
        assert_eq!(port.as_fd().as_raw_fd(), port.fd());
        drop(port.clone());
        assert!(kernel.is_open());
        drop(port);
        assert!(!kernel.is_open());
    }

    #[test]
    fn a_port_waits_without_limit_if_there_is_none() {
        let (port, kernel) = fake::port();
        let received = port.recv(Some(Duration::ZERO)).expect("an open port");
        assert!(received.is_none(), "{received:?}");
        let received = port.recv(Some(Duration::from_millis(1)));
        assert!(received.expect("an open port").is_none());
        let received = thread::scope(|scope| {
            let waiting = scope.spawn(|| port.recv(None));
            thread::sleep(Duration::from_millis(50));
            kernel.pass(5, 0, &[0; 256]);
            waiting.join().expect("no panic")
        });
        let received = received.expect("an open port").expect("a datagram");
        assert_eq!(received.agent, 5);
    }

    #[test]
    fn milliseconds_are_rounded_up() {
        assert_eq!(to_millis(Duration::ZERO), 0);
        assert_eq!(to_millis(Duration::from_micros(1)), 1);
        assert_eq!(to_millis(Duration::from_millis(7)), 7);
        assert_eq!(to_millis(Duration::MAX), c_int::MAX);
    }

    #[test]
    fn unknown_adapter_is_not_found() {
        let error = Port::open("no_such_ca", 1).expect_err("no such adapter");
        assert!(
            error.to_string().starts_with("umad_get_ca: no_such_ca"),
            "{error}"
        );
    }
}
