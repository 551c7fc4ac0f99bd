//! Communication identifiers (`rdma_cm_id`).

#![allow(unsafe_code)]

mod conn_param;
mod ece;
mod options;
pub(crate) mod path;
pub(crate) mod qp_change;
pub(crate) mod transition;

use std::ffi::{CStr, c_void};
use std::fmt;
use std::net::SocketAddr;
use std::ptr::{self, NonNull};
use std::time::Duration;

use ibverbs::{Errno, Error, ErrorKind, Result, device::TransportType, event::EventType};
use rdma_sys::{
    ibv_get_device_name, ibv_qp_attr, rdma_accept, rdma_bind_addr, rdma_cm_id, rdma_connect,
    rdma_create_id, rdma_destroy_id, rdma_disconnect, rdma_establish, rdma_get_local_addr,
    rdma_get_peer_addr, rdma_init_qp_attr, rdma_listen, rdma_migrate_id, rdma_notify, rdma_reject,
    rdma_reject_ece, rdma_resolve_addr, rdma_resolve_route,
};

pub(crate) use self::conn_param::QpIdentity;
use self::conn_param::raw_params;
pub(crate) use self::options::IdOptions;
pub(crate) use self::path::Path;
use crate::address::{self, Address, PortSpace, RawAddress};
use crate::convert::{failed, zero_or_last};
use crate::event::{Event, EventChannel, IdKey};
use crate::hint;
use crate::params::ConnectParams;
use crate::wait::as_millis;

/// An identifier, and the channel on which its events come. It has one owner.
///
/// Only what has settled (connections, listeners, memberships) is on a channel with others: taking
/// another's event off the channel changes nothing of this one.
pub(crate) struct Id {
    raw: NonNull<rdma_cm_id>,
    channel: EventChannel,
    key: IdKey,
    /// A connect request nobody has answered: it is rejected when dropped.
    unanswered: bool,
}

// SAFETY: librdmacm binds an identifier to no thread. It is not `Sync`: one thread at a time uses
// it.
unsafe impl Send for Id {}

impl Id {
    /// A fresh identifier on a channel of its own.
    pub(crate) fn create(port_space: PortSpace) -> Result<Self> {
        let channel = EventChannel::private()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is alive, and outlives the identifier; the pointer is valid for
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
                "no identifier and no reason",
            )
        })?;
        let id = Self {
            raw,
            channel,
            key: IdKey::new(),
            unanswered: false,
        };
        id.channel.register(id.subject(), id.key);
        Ok(id)
    }

    /// The identifier that a connect request brought to this one, if the event is one, on a channel
    /// of its own.
    pub(crate) fn adopt(&self, event: &mut Event) -> Result<Option<Self>> {
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
            unanswered: true,
        };
        new.migrate(&EventChannel::private()?)?;
        Ok(Some(new))
    }

    pub(crate) fn as_ptr(&self) -> *mut rdma_cm_id {
        self.raw.as_ptr()
    }

    /// What the channel knows it by.
    fn subject(&self) -> usize {
        self.as_ptr().addr()
    }

    pub(crate) fn key(&self) -> IdKey {
        self.key
    }

    pub(crate) fn channel(&self) -> &EventChannel {
        &self.channel
    }

    /// Moves the identifier to another channel, with those of its events that nobody has taken.
    pub(crate) fn migrate(&mut self, to: &EventChannel) -> Result<()> {
        if self.channel.is(to) {
            return Ok(());
        }
        // From here on its events may come on either channel.
        to.register(self.subject(), self.key);
        // SAFETY: both channels are alive; the old one is kept until the move succeeded, the new
        // one from then on. It waits until events of the identifier are acknowledged, which
        // each is before the call that took it off the channel returns.
        let returned = unsafe { rdma_migrate_id(self.raw.as_ptr(), to.raw().as_ptr()) };
        if let Err(error) = zero_or_last("rdma_migrate_id", &"identifier", returned) {
            to.unregister(self.subject());
            return Err(error);
        }
        let from = std::mem::replace(&mut self.channel, to.clone());
        self.channel
            .forward(self.subject(), from.unregister(self.subject()))
    }

    pub(crate) fn bind(&self, address: Address) -> Result<()> {
        let mut raw = RawAddress::from(address);
        // SAFETY: the identifier is alive and the address valid during the call.
        let returned = unsafe { rdma_bind_addr(self.raw.as_ptr(), raw.as_mut_ptr()) };
        zero_or_last_at("rdma_bind_addr", address, returned)
    }

    pub(crate) fn listen(&self, backlog: i32, what: &dyn fmt::Display) -> Result<()> {
        // SAFETY: the identifier is alive.
        let returned = unsafe { rdma_listen(self.raw.as_ptr(), backlog) };
        zero_or_last("rdma_listen", what, returned)
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
        // SAFETY: the identifier is alive; the addresses are valid or null during the call.
        let returned = unsafe {
            rdma_resolve_addr(
                self.raw.as_ptr(),
                source,
                raw.as_mut_ptr(),
                as_millis(timeout),
            )
        };
        zero_or_last_at("rdma_resolve_addr", peer, returned)
    }

    pub(crate) fn resolve_route(&self, timeout: Duration, peer: Address) -> Result<()> {
        // SAFETY: the identifier is alive.
        let returned = unsafe { rdma_resolve_route(self.raw.as_ptr(), as_millis(timeout)) };
        zero_or_last_at("rdma_resolve_route", peer, returned)
    }

    /// Sends the request. Blocks for the TCP handshake on iWARP.
    pub(crate) fn connect(
        &self,
        params: &ConnectParams<'_>,
        qp: QpIdentity,
        what: &dyn fmt::Display,
    ) -> Result<()> {
        if let Some(ece) = params.ece {
            self.set_local_ece(ece, what)?;
        }
        let mut raw = raw_params(params, qp);
        // SAFETY: the identifier is alive; the parameters and the private data are valid during the
        // call.
        let returned = unsafe { rdma_connect(self.raw.as_ptr(), &raw mut raw) };
        zero_or_last("rdma_connect", what, returned)
    }

    pub(crate) fn accept(
        &mut self,
        params: &ConnectParams<'_>,
        qp: QpIdentity,
        what: &dyn fmt::Display,
    ) -> Result<()> {
        if let Some(ece) = params.ece {
            self.set_local_ece(ece, what)?;
        }
        let mut raw = raw_params(params, qp);
        // SAFETY: as for connecting.
        let returned = unsafe { rdma_accept(self.raw.as_ptr(), &raw mut raw) };
        zero_or_last("rdma_accept", what, returned)?;
        self.unanswered = false;
        Ok(())
    }

    /// Tells the passive side that this side's queue pair is ready.
    pub(crate) fn establish(&self, what: &dyn fmt::Display) -> Result<()> {
        // SAFETY: the identifier is alive and has no queue pair of its own.
        let returned = unsafe { rdma_establish(self.raw.as_ptr()) };
        zero_or_last("rdma_establish", what, returned)
    }

    /// Tells what the device said of the queue pair.
    pub(crate) fn notify(&self, event: EventType, what: &dyn fmt::Display) -> Result<()> {
        // SAFETY: the identifier is alive; the kernel checks the number.
        let returned = unsafe { rdma_notify(self.raw.as_ptr(), event.0) };
        zero_or_last("rdma_notify", &format_args!("{what}: {event}"), returned)
    }

    pub(crate) fn reject(&mut self, private_data: &[u8], what: &dyn fmt::Display) -> Result<()> {
        self.unanswered = false;
        let length = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
        // SAFETY: the identifier is alive, and at least `length` bytes are valid for reading.
        let returned = unsafe {
            rdma_reject(
                self.raw.as_ptr(),
                private_data.as_ptr().cast::<c_void>(),
                length,
            )
        };
        zero_or_last("rdma_reject", what, returned)
    }

    pub(crate) fn reject_ece(
        &mut self,
        private_data: &[u8],
        what: &dyn fmt::Display,
    ) -> Result<()> {
        self.unanswered = false;
        let length = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
        // SAFETY: as for rejecting.
        let returned = unsafe {
            rdma_reject_ece(
                self.raw.as_ptr(),
                private_data.as_ptr().cast::<c_void>(),
                length,
            )
        };
        zero_or_last("rdma_reject_ece", what, returned)
    }

    pub(crate) fn disconnect(&self, what: &dyn fmt::Display) -> Result<()> {
        // SAFETY: the identifier is alive.
        let returned = unsafe { rdma_disconnect(self.raw.as_ptr()) };
        zero_or_last("rdma_disconnect", what, returned)
    }

    /// The attributes that a queue pair needs to enter `state` on this identifier, and which of
    /// them count.
    pub(crate) fn init_qp_attr(
        &self,
        state: u32,
        what: &dyn fmt::Display,
    ) -> Result<(ibv_qp_attr, i32)> {
        let mut attr = ibv_qp_attr {
            qp_state: state,
            ..Default::default()
        };
        let mut mask = 0;
        // SAFETY: the identifier is alive and bound to a device; both places are valid for writing.
        let returned =
            unsafe { rdma_init_qp_attr(self.raw.as_ptr(), &raw mut attr, &raw mut mask) };
        zero_or_last("rdma_init_qp_attr", what, returned)?;
        Ok((attr, mask))
    }

    /// The local address; `None` if it is of an unknown family.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is alive; the place is a union of all address structures, zeroed
        // before it is filled.
        unsafe { address::from_raw(rdma_get_local_addr(self.raw.as_ptr())) }
    }

    fn is_ip(&self) -> bool {
        // SAFETY: as for the local address; every socket address starts with its family.
        let family = i32::from(unsafe { (*rdma_get_local_addr(self.raw.as_ptr())).sa_family });
        matches!(family, libc::AF_INET | libc::AF_INET6)
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        // SAFETY: as for the local address.
        unsafe { address::from_raw(rdma_get_peer_addr(self.raw.as_ptr())) }
    }

    /// The device and the addresses, once they are resolved.
    pub(crate) fn path(&self, verb: &'static str) -> Result<Path> {
        let peer = self.peer_addr().ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                verb,
                "the peer's address is of an unknown family",
            )
        })?;
        self.path_to(verb, peer)
    }

    /// The device and the local address, and a peer that the identifier does not know.
    pub(crate) fn path_to(&self, verb: &'static str, peer: SocketAddr) -> Result<Path> {
        let missing = |what: &'static str| Error::new(ErrorKind::NotFound, verb, what);
        let local = self
            .local_addr()
            .ok_or_else(|| missing("the local address is of an unknown family"))?;
        // SAFETY: the identifier is alive; librdmacm changes these fields only in calls for this
        // identifier, none of which runs now.
        let (verbs, port_num) =
            unsafe { ((*self.raw.as_ptr()).verbs, (*self.raw.as_ptr()).port_num) };
        if verbs.is_null() {
            return Err(missing("no device was chosen"));
        }
        // SAFETY: librdmacm keeps the context open while identifiers refer to it; the name is a
        // NUL-terminated array of the device.
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

    /// Takes an event that is there already.
    pub(crate) fn try_event(&self) -> Result<Option<Event>> {
        self.channel.try_take(self.subject())
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        if self.unanswered {
            // Only a courtesy: destroying it rejects too, without private data either.
            let _ = self.reject(&[], &"");
        }
        // First, for another identifier may have the address at once.
        drop(self.channel.unregister(self.subject()));
        // SAFETY: the only owner goes. Its queue pair, if any, was destroyed before. It waits until
        // events of it are acknowledged, which each is before the call that took it off the
        // channel returns.
        if unsafe { rdma_destroy_id(self.raw.as_ptr()) } != 0 {
            ibverbs::count_leaked_object();
            std::mem::forget(self.channel.clone());
        }
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Id")
            .field("local", &self.local_addr())
            .finish_non_exhaustive()
    }
}

/// The same for calls with an address: what GIDs need is something else than what IP addresses
/// need.
fn zero_or_last_at(verb: &'static str, address: Address, returned: i32) -> Result<()> {
    let errno = Errno::last();
    match (returned, address) {
        (0, _) => Ok(()),
        (_, Address::Ib(_)) if errno.0 == libc::ENODEV => {
            Err(Error::of_verb(verb, errno, address.to_string()).with_hint(hint::NO_IB))
        }
        _ => Err(failed(verb, errno, &address)),
    }
}
