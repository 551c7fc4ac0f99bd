//! Named sockets at which other processes find the listeners of this one.

use std::collections::HashMap;
use std::io::{ErrorKind, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Weak};

use crate::errno::{Errno, Result};

/// A name that this process owns while the value exists.
#[derive(Debug)]
pub(crate) struct Service {
    listener: UnixListener,
}

/// The names of this process.
#[derive(Debug, Default)]
pub(super) struct Services(HashMap<String, Weak<Service>>);

/// Returns the address of a name, in the abstract name space.
fn address(device: &str, name: &str) -> std::io::Result<SocketAddr> {
    let user = crate::syscall::user();
    SocketAddr::from_abstract_name(format!("nic-model-{user}-{device}-{name}"))
}

impl Services {
    /// Takes a name, or shares that of this process. Fails with `EADDRINUSE` if another process has
    /// it.
    pub(super) fn bind(&mut self, device: &str, name: &str) -> Result<Arc<Service>> {
        self.0.retain(|_, service| service.strong_count() > 0);
        if let Some(service) = self.0.get(name).and_then(Weak::upgrade) {
            return Ok(service);
        }
        let bound = address(device, name).and_then(|address| {
            let listener = UnixListener::bind_addr(&address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = bound.map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => Errno::EADDRINUSE,
            _ => Errno::EADDRNOTAVAIL,
        })?;
        let service = Arc::new(Service { listener });
        self.0.insert(name.to_owned(), Arc::downgrade(&service));
        Ok(service)
    }

    /// Returns `true` if this process has the name.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|weak| weak.strong_count() > 0)
    }

    /// Returns the number of sockets.
    pub(super) fn count(&self) -> usize {
        let services = self.0.values();
        services.filter(|weak| weak.strong_count() > 0).count()
    }

    /// Returns the streams that have arrived.
    pub(super) fn accept(&self) -> Vec<UnixStream> {
        let services = self.0.values().filter_map(Weak::upgrade);
        services
            .flat_map(|service| {
                std::iter::from_fn(move || service.listener.accept().ok())
                    .filter(|(stream, _)| stream.set_nonblocking(true).is_ok())
                    .map(|(stream, _)| stream)
                    .collect::<Vec<_>>()
            })
            .collect()
    }
}

/// Sends bytes to the process with a name. Returns `false` if there is none.
pub(super) fn send(device: &str, name: &str, bytes: &[u8]) -> bool {
    address(device, name)
        .and_then(|address| UnixStream::connect_addr(&address))
        .and_then(|mut stream| stream.write_all(bytes))
        .is_ok()
}
