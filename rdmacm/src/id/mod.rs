//! Communication identifiers (`rdma_cm_id`), the sockets of the connection manager. All
//! connections, listeners and memberships own one.

#![allow(unsafe_code)]

mod conn_param;
mod connect;
mod ece;
mod lookup;
mod options;
pub(crate) mod path;
pub(crate) mod qp_change;
pub(crate) mod transition;

use std::ffi::CStr;
use std::fmt;
use std::net::SocketAddr;
use std::ptr::{self, NonNull};
use std::time::Duration;

use ibverbs::{Errno, Error, ErrorKind, Result, device::TransportType};
use rdma_sys::{
    ibv_get_device_name, ibv_qp_attr, rdma_bind_addr, rdma_cm_id, rdma_create_id, rdma_destroy_id,
    rdma_get_local_addr, rdma_get_peer_addr, rdma_init_qp_attr, rdma_listen, rdma_migrate_id,
    rdma_resolve_addr, rdma_resolve_route,
};

pub(crate) use self::conn_param::QpIdentity;
pub(crate) use self::options::IdOptions;
pub(crate) use self::path::Path;
use crate::address::{self, Address, PortSpace, RawAddress};
use crate::convert::{failed, zero_or_last};
use crate::event::{Event, EventChannel, IdKey};
use crate::help;
use crate::wait::as_millis;

/// An identifier and the channel that delivers its events. It has exactly one owner.
///
/// Other threads can read the events of an identifier on a shared channel. librdmacm then writes to
/// the identifier: its addresses and its device with `ADDR_RESOLVED`, its paths with
/// `ROUTE_RESOLVED`, the peer's ECE options with `CONNECT_RESPONSE`. The lock of the dispatcher is
/// held while events are read, and while the owner reads any of these ([`Id::exclusively`]).
pub(crate) struct Id {
    raw: NonNull<rdma_cm_id>,
    channel: EventChannel,
    key: IdKey,
}

// SAFETY: librdmacm does not bind an identifier to a thread. `Id` is not `Sync`, so only one thread
// uses it at a time.
unsafe impl Send for Id {}

impl Id {
    /// Creates an identifier on `channel`, or on a channel of its own.
    pub(crate) fn create(port_space: PortSpace, channel: Option<&EventChannel>) -> Result<Self> {
        let channel = match channel {
            Some(channel) => channel.clone(),
            None => EventChannel::create_private()?,
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is alive and outlives the identifier, and the pointer is valid for
        // writing.
        let returned = unsafe {
            rdma_create_id(
                channel.raw().as_ptr(),
                &raw mut raw,
                ptr::null_mut(),
                port_space.0,
            )
        };
        zero_or_last(
            "rdma_create_id",
            &format_args!("identifier of port space {port_space}"),
            returned,
        )?;
        let raw = NonNull::new(raw).ok_or_else(|| {
            Error::new(
                ErrorKind::Os,
                "rdma_create_id",
                "librdmacm returned no identifier and no error",
            )
        })?;
        let id = Self {
            raw,
            channel,
            key: IdKey::new(),
        };
        id.channel.register(id.addr(), id.key);
        Ok(id)
    }

    /// Returns the new identifier if the event is a connect request of this one, after moving it to
    /// the channel `to`, or to one of its own.
    pub(crate) fn take_request_id(
        &self,
        event: &mut Event,
        to: Option<&EventChannel>,
    ) -> Result<Option<Self>> {
        let Some(raw) = event.take_new_id() else {
            return Ok(None);
        };
        let key = self
            .channel
            .key(raw.as_ptr().addr())
            .unwrap_or_else(IdKey::new);
        let mut new = Self {
            raw,
            channel: self.channel.clone(),
            key,
        };
        match to {
            Some(to) if self.channel.ptr_eq(to) => to.show(new.addr()),
            Some(to) => new.migrate(to)?,
            None => new.migrate(&EventChannel::create_private()?)?,
        }
        Ok(Some(new))
    }

    pub(crate) fn as_ptr(&self) -> *mut rdma_cm_id {
        self.raw.as_ptr()
    }

    /// Calls a function with the identifier while no thread reads events, which write to it.
    pub(crate) fn exclusively<R>(&self, f: impl FnOnce(*mut rdma_cm_id) -> R) -> R {
        self.channel.without_readers(|| f(self.as_ptr()))
    }

    /// Returns the address of the identifier, which the channel uses as the key of its event queue.
    pub(crate) fn addr(&self) -> usize {
        self.as_ptr().addr()
    }

    pub(crate) fn key(&self) -> IdKey {
        self.key
    }

    pub(crate) fn channel(&self) -> &EventChannel {
        &self.channel
    }

    /// Moves the identifier to another channel, together with its unread events.
    pub(crate) fn migrate(&mut self, to: &EventChannel) -> Result<()> {
        if self.channel.ptr_eq(to) {
            return Ok(());
        }
        // From here on its events may arrive on either channel.
        to.register(self.addr(), self.key);
        // SAFETY: both channels stay alive: `self.channel` until the migration has succeeded, and
        // `to` from then on. The call waits for unacknowledged events of the identifier, and there
        // are none because `Event` acknowledges each when it is read.
        let returned = unsafe { rdma_migrate_id(self.raw.as_ptr(), to.raw().as_ptr()) };
        if let Err(error) = zero_or_last("rdma_migrate_id", &"identifier", returned) {
            to.unregister(self.addr());
            return Err(error);
        }
        let from = std::mem::replace(&mut self.channel, to.clone());
        self.channel
            .prepend(self.addr(), from.unregister(self.addr()))
    }

    pub(crate) fn bind(&self, address: Address) -> Result<()> {
        let mut raw = RawAddress::from(address);
        // SAFETY: `self` keeps the identifier alive, and the address is valid during the call.
        let returned = unsafe { rdma_bind_addr(self.raw.as_ptr(), raw.as_mut_ptr()) };
        address_result("rdma_bind_addr", address, returned)
    }

    pub(crate) fn listen(&self, backlog: u16, detail: &dyn fmt::Display) -> Result<()> {
        // The kernel counts only the requests that this process has not read. A shared channel
        // reads all of them, so the requests that it holds are limited separately.
        self.channel
            .limit_requests(self.addr(), backlog.max(1).into());
        // SAFETY: `self` keeps the identifier alive.
        let returned = unsafe { rdma_listen(self.raw.as_ptr(), backlog.max(1).into()) };
        zero_or_last("rdma_listen", detail, returned)
    }

    pub(crate) fn resolve_addr(
        &self,
        source: Option<Address>,
        peer: Address,
        timeout: Duration,
    ) -> Result<()> {
        let mut source = source.map(RawAddress::from);
        let source = source
            .as_mut()
            .map_or(ptr::null_mut(), RawAddress::as_mut_ptr);
        let mut raw = RawAddress::from(peer);
        // The call writes the peer's address last, and reading the event of its result does too.
        self.exclusively(|id| {
            // SAFETY: `self` keeps the identifier alive. The addresses are null or valid during the
            // call.
            let returned =
                unsafe { rdma_resolve_addr(id, source, raw.as_mut_ptr(), as_millis(timeout)) };
            address_result("rdma_resolve_addr", peer, returned)
        })
    }

    pub(crate) fn resolve_route(&self, timeout: Duration, peer: Address) -> Result<()> {
        // SAFETY: `self` keeps the identifier alive.
        let returned = unsafe { rdma_resolve_route(self.raw.as_ptr(), as_millis(timeout)) };
        address_result("rdma_resolve_route", peer, returned)
    }

    /// Returns the attributes that a queue pair needs to enter `state`, and their mask.
    pub(crate) fn init_qp_attr(
        &self,
        state: u32,
        detail: &dyn fmt::Display,
    ) -> Result<(ibv_qp_attr, i32)> {
        let mut attr = ibv_qp_attr {
            qp_state: state,
            ..Default::default()
        };
        let mut mask = 0;
        // SAFETY: `self` keeps the identifier alive, and both pointers are valid for writing. The
        // kernel fails with `EINVAL` if no device is resolved.
        let returned =
            unsafe { rdma_init_qp_attr(self.raw.as_ptr(), &raw mut attr, &raw mut mask) };
        zero_or_last("rdma_init_qp_attr", detail, returned)?;
        Ok((attr, mask))
    }

    /// Returns the local address, or `None` if its family is unknown.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        // SAFETY: `self` keeps the identifier alive, and nothing changes it meanwhile. The address
        // is in a union of all address structures, which librdmacm zeroes before filling it.
        self.exclusively(|id| unsafe { address::from_raw(rdma_get_local_addr(id)) })
    }

    fn is_ip(&self) -> bool {
        // SAFETY: as for `local_addr`. Every socket address starts with its family.
        let family = self.exclusively(|id| unsafe { (*rdma_get_local_addr(id)).sa_family });
        matches!(i32::from(family), libc::AF_INET | libc::AF_INET6)
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        // SAFETY: as for `local_addr`.
        self.exclusively(|id| unsafe { address::from_raw(rdma_get_peer_addr(id)) })
    }

    /// Returns the device and both addresses after they are resolved.
    pub(crate) fn path(&self, verb: &'static str) -> Result<Path> {
        let peer = self.peer_addr().ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                verb,
                "the address family of the peer is unknown",
            )
        })?;
        self.path_to(verb, peer)
    }

    /// Returns the device and the local address, with a peer that the identifier does not store.
    pub(crate) fn path_to(&self, verb: &'static str, peer: SocketAddr) -> Result<Path> {
        let missing = |detail: &'static str| Error::new(ErrorKind::NotFound, verb, detail);
        let local = self
            .local_addr()
            .ok_or_else(|| missing("the address family of the local address is unknown"))?;
        // SAFETY: `self` keeps the identifier alive, and nothing changes it meanwhile: librdmacm
        // changes these fields only in calls of the owner and when an event is read
        // (docs/drivers.md, "What the library assumes").
        let (verbs, port_num) = self.exclusively(|id| unsafe { ((*id).verbs, (*id).port_num) });
        if verbs.is_null() {
            return Err(missing("no device was chosen"));
        }
        // SAFETY: librdmacm keeps the context open while identifiers refer to it. The name is a
        // NUL-terminated array inside the device.
        let (name, transport) = unsafe {
            let device = (*verbs).device;
            (
                CStr::from_ptr(ibv_get_device_name(device)),
                (*device).transport_type,
            )
        };
        Ok(Path {
            device: name.to_string_lossy().into_owned(),
            transport: TransportType(transport),
            is_ip: self.is_ip(),
            port_num,
            local,
            peer,
        })
    }

    /// Returns the next event, if there is one.
    pub(crate) fn try_event(&self) -> Result<Option<Event>> {
        self.channel.try_take(self.addr())
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // Unregister first, because a new identifier can get the same address as soon as this one
        // is freed.
        drop(self.channel.unregister(self.addr()));
        // The kernel rejects a connect request without an answer.
        // SAFETY: this is the only owner, and its queue pair was destroyed before. The call waits
        // for unacknowledged events of the identifier, and there are none because `Event`
        // acknowledges each when it is read.
        if unsafe { rdma_destroy_id(self.raw.as_ptr()) } != 0 {
            ibverbs::count_leaked_object();
            std::mem::forget(self.channel.clone());
        }
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Id")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Converts the result of a call with an address. The remedy depends on the address family.
fn address_result(verb: &'static str, address: Address, returned: i32) -> Result<()> {
    let errno = Errno::last();
    match (returned, address) {
        (0, _) => Ok(()),
        (_, Address::Ib(_)) if errno.0 == libc::ENODEV => {
            Err(ibverbs::call_failed(verb, errno, address.to_string()).with_help(help::NO_IB))
        }
        _ => Err(failed(verb, errno, &address)),
    }
}
