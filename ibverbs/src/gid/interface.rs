//! Network interfaces of this host: their names, and the prefixes of their addresses.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// The name of the interface of this index.
pub(crate) fn name(ifindex: u32) -> Option<String> {
    if ifindex == 0 {
        return None;
    }
    let mut name = [0_u8; libc::IF_NAMESIZE];
    // SAFETY: the array has the IF_NAMESIZE bytes that the call may write.
    let found = unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr().cast()) };
    if found.is_null() {
        return None;
    }
    CStr::from_bytes_until_nul(&name)
        .ok()
        .map(|name| name.to_string_lossy().into_owned())
}

/// Every address of this host with the bits of its network's prefix; empty where the system does
/// not say.
pub(crate) fn prefixes() -> Vec<(IpAddr, u8)> {
    let mut list = ptr::null_mut();
    // SAFETY: the pointer is valid for writing.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut all = Vec::new();
    let mut next = list;
    // SAFETY: the list is the system's, linked to a null end, and alive until it is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: an address and a mask are null or a socket address of the family that they say.
        let (ip, mask) = unsafe { (ip_of(entry.ifa_addr), ip_of(entry.ifa_netmask)) };
        if let (Some(ip), Some(mask)) = (ip, mask) {
            let bits = match mask {
                IpAddr::V4(mask) => mask.to_bits().leading_ones(),
                IpAddr::V6(mask) => mask.to_bits().leading_ones(),
            };
            all.push((ip, u8::try_from(bits).unwrap_or(0)));
        }
        next = entry.ifa_next;
    }
    // SAFETY: freed once, and nothing of it is kept.
    unsafe { libc::freeifaddrs(list) };
    all
}

/// The IP address in a socket address.
///
/// # Safety
/// The pointer is null, or of a socket address as long as its family says.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: null or readable, by the caller's promise.
    let family = i32::from(unsafe { address.as_ref()? }.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: of this family, so that long; read without asking for alignment.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from_bits(u32::from_be(
                v4.sin_addr.s_addr,
            ))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "asks the system")]
    fn the_loopback_interface_has_eight_bits_of_network() {
        let loopback = prefixes()
            .into_iter()
            .find(|(ip, _)| *ip == IpAddr::V4(Ipv4Addr::LOCALHOST));
        // A sandbox may have no interface that is up.
        assert!(loopback.is_none_or(|(_, bits)| bits == 8));
        assert_eq!(name(0), None);
        assert_eq!(name(u32::MAX), None);
    }
}
