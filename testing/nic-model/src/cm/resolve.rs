//! Addresses, ports and routes of identifiers.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::address::Address;
use super::event::plain;
use super::{Cm, Id, State, random};
use crate::abi::core::GidEntry;
use crate::abi::rdma_cm::event;
use crate::errno::{Errno, Result};
use crate::nic::Shared;
use crate::syscall;

/// Type of the GIDs of RoCE v2.
const ROCE_V2: u32 = 2;
/// Ports below need a privilege.
const FIRST_UNPRIVILEGED: u16 = 1024;
/// Ports that an identifier without a port gets (`net.ipv4.ip_local_port_range`).
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// Returns the entry of the GID table for an IP address, in RoCE v2.
pub(super) fn find_gid(cx: &Shared, address: Address) -> Option<&GidEntry> {
    use zerocopy::IntoBytes;

    let gid = address.gid();
    cx.gids
        .iter()
        .find(|entry| entry.gid_type == ROCE_V2 && entry.gid.as_bytes() == gid)
}

/// Returns the name under which other processes find a listener.
pub(super) fn service_name(port_space: u16, address: SocketAddr) -> String {
    format!("cm-{port_space:x}-{}-{}", address.ip(), address.port())
}

/// Notes that the route of an identifier is resolved. Fails with `EINVAL` if its address is not.
pub(super) fn route_resolved(id: &mut Id) -> Result<()> {
    if id.state != State::AddrResolved {
        return Err(Errno::EINVAL);
    }
    id.state = State::RouteResolved;
    id.has_route = true;
    Ok(())
}

/// Fails if the two identifiers cannot have the same port (`cma_check_port`).
fn conflict(id: &Id, other: &Id, reuse: bool) -> Result<()> {
    let (Address::Ip(own), Address::Ip(its)) = (id.source, other.source) else {
        return Ok(());
    };
    if !other.owns_port || other.port_space != id.port_space || own.port() != its.port() {
        return Ok(());
    }
    if other.state != State::Listen && reuse && other.reuse {
        return Ok(());
    }
    let only = |id: &Id| id.only_family.unwrap_or(false);
    if only(id) && only(other) && !id.source.same_family(&other.source) {
        return Ok(());
    }
    if own.ip().is_unspecified() || its.ip().is_unspecified() {
        return Err(Errno::EADDRNOTAVAIL);
    }
    if own.ip() == its.ip() {
        return Err(Errno::EADDRINUSE);
    }
    Ok(())
}

impl Cm {
    /// Binds an identifier (`rdma_bind_addr`).
    pub(super) fn bind(
        &mut self,
        cx: &mut Shared,
        file: u32,
        number: u32,
        address: Address,
    ) -> Result<()> {
        if address == Address::Unspecified {
            return Err(Errno::EINVAL);
        }
        let id = self.id(file, number)?;
        if id.state != State::Idle {
            return Err(Errno::EINVAL);
        }
        if !address.is_wildcard() {
            check_local(cx, address)?;
        }
        id.source = address;
        let before = id.only_family;
        if let (None, Some(ip)) = (before, address.ip()) {
            id.only_family = Some(ip.is_ipv4());
        }
        if let Err(errno) = self.take_port(cx, number) {
            let id = self.id(file, number)?;
            id.source = Address::Unspecified;
            id.only_family = before;
            return Err(errno);
        }
        let id = self.id(file, number)?;
        id.state = State::Bound;
        id.has_device = !address.is_wildcard();
        id.destination = address.wildcard();
        Ok(())
    }

    /// Reserves the port of an identifier, or any port (`cma_get_port`).
    fn take_port(&mut self, cx: &mut Shared, number: u32) -> Result<()> {
        let id = self.ids.get(number).ok_or(Errno::ENOENT)?;
        let Address::Ip(mut address) = id.source else {
            return Ok(());
        };
        if address.port() == 0 {
            let range = u32::from(EPHEMERAL.end() - EPHEMERAL.start()) + 1;
            let first = random() % range;
            let free = (0..range)
                .map(|offset| (first + offset) % range + u32::from(*EPHEMERAL.start()))
                .filter_map(|port| u16::try_from(port).ok())
                .find(|port| !self.is_used(id.port_space, *port));
            address.set_port(free.ok_or(Errno::EADDRNOTAVAIL)?);
        } else {
            if address.port() < FIRST_UNPRIVILEGED && syscall::user() != 0 {
                return Err(Errno::EACCES);
            }
            self.check_port(number, id.reuse)?;
            // A listener in another process may have the port.
            let service = cx
                .network
                .bind_service(&service_name(id.port_space, address))?;
            self.ids.get_mut(number).ok_or(Errno::ENOENT)?.service = Some(service);
        }
        let id = self.ids.get_mut(number).ok_or(Errno::ENOENT)?;
        id.source = Address::Ip(address);
        id.owns_port = true;
        Ok(())
    }

    fn is_used(&self, port_space: u16, port: u16) -> bool {
        self.ids.iter().any(|(_, id)| {
            id.owns_port
                && id.port_space == port_space
                && id.source.ip().is_some_and(|ip| ip.port() == port)
        })
    }

    fn check_port(&self, number: u32, reuse: bool) -> Result<()> {
        let id = self.ids.get(number).ok_or(Errno::ENOENT)?;
        self.ids
            .iter()
            .filter(|(other, _)| *other != number)
            .try_for_each(|(_, other)| conflict(id, other, reuse))
    }

    /// Starts to listen (`rdma_listen`).
    pub(super) fn listen(
        &mut self,
        cx: &mut Shared,
        file: u32,
        number: u32,
        backlog: u32,
    ) -> Result<()> {
        if self.id(file, number)?.state == State::Idle {
            let any = SocketAddr::new(IpAddr::from([0; 4]), 0);
            self.bind(cx, file, number, Address::Ip(any))?;
        }
        let id = self.id(file, number)?;
        if id.state != State::Bound {
            return Err(Errno::EINVAL);
        }
        let (reuse, port_space, source) = (id.reuse, id.port_space, id.source);
        let has_service = id.service.is_some();
        if reuse {
            self.check_port(number, false)?;
        }
        if let (false, Some(address)) = (has_service, source.ip()) {
            let service = cx
                .network
                .bind_service(&service_name(port_space, address))?;
            self.id(file, number)?.service = Some(service);
        }
        let id = self.id(file, number)?;
        id.backlog = backlog;
        id.state = State::Listen;
        Ok(())
    }

    /// Resolves a destination (`rdma_resolve_addr`). Only addresses of the adapter are reachable.
    pub(super) fn resolve_addr(
        &mut self,
        cx: &mut Shared,
        file: u32,
        number: u32,
        source: Address,
        destination: Address,
    ) -> Result<()> {
        let id = self.id(file, number)?;
        if id.state == State::Idle {
            let source = match source {
                Address::Unspecified => destination.wildcard(),
                source => source,
            };
            self.bind(cx, file, number, source)?;
        }
        let id = self.id(file, number)?;
        if !id.source.same_family(&destination) || id.state != State::Bound {
            return Err(Errno::EINVAL);
        }
        let Address::Ip(mut target) = destination else {
            // RoCE has no AF_IB (`rdma_cap_af_ib`).
            return Err(Errno::ENODEV);
        };
        if target.ip().is_unspecified() {
            target.set_ip(match target {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        id.destination = Address::Ip(target);
        if find_gid(cx, id.destination).is_none() {
            self.post(number, plain(event::ADDR_ERROR, -libc::ENODEV));
            return Ok(());
        }
        if let Address::Ip(own) = &mut id.source
            && own.ip().is_unspecified()
        {
            own.set_ip(target.ip());
        }
        id.has_device = true;
        id.state = State::AddrResolved;
        self.post(number, plain(event::ADDR_RESOLVED, 0));
        Ok(())
    }

    /// Resolves the route (`rdma_resolve_route`).
    pub(super) fn resolve_route(&mut self, file: u32, number: u32) -> Result<()> {
        route_resolved(self.bound_id(file, number)?)?;
        self.post(number, plain(event::ROUTE_RESOLVED, 0));
        Ok(())
    }
}

/// Checks that the adapter has an address. Fails with `ENODEV` if only the host has it.
fn check_local(cx: &Shared, address: Address) -> Result<()> {
    if find_gid(cx, address).is_some() {
        return Ok(());
    }
    let on_host = address
        .ip()
        .is_some_and(|ip| UdpSocket::bind(SocketAddr::new(ip.ip(), 0)).is_ok());
    if on_host || address.ip().is_none() {
        return Err(Errno::ENODEV);
    }
    Err(Errno::EADDRNOTAVAIL)
}
