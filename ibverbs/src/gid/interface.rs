//! Names and address prefixes of this host's network interfaces.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// Returns the name of the interface with this index.
pub(crate) fn name(ifindex: u32) -> Option<String> {
    if ifindex == 0 {
        return None;
    }
    let mut name = [0_u8; libc::IF_NAMESIZE];
    // SAFETY: the call writes at most IF_NAMESIZE bytes, the size of the array.
    let found = unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr().cast()) };
    if found.is_null() {
        return None;
    }
    CStr::from_bytes_until_nul(&name)
        .ok()
        .map(|name| name.to_string_lossy().into_owned())
}

/// Returns every address of this host with the length of its network prefix. The list is empty if
/// the system does not report any.
pub(crate) fn prefixes() -> Vec<(IpAddr, u8)> {
    let mut list = ptr::null_mut();
    // SAFETY: the pointer is writable.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut all = Vec::new();
    let mut next = list;
    // SAFETY: getifaddrs returned a null-terminated linked list, which is not freed before the end
    // of the loop.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: getifaddrs returns addresses and masks that are null or valid for their family.
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
    // SAFETY: the list is freed once, and no pointer into it is used afterwards.
    unsafe { libc::freeifaddrs(list) };
    all
}

/// Returns the IP address of a socket address, or `None` for other families.
///
/// # Safety
/// `address` must be null or point to a socket address with the size of its family.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller guarantees that the pointer is null or readable.
    let family = i32::from(unsafe { address.as_ref()? }.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: the caller guarantees the size of this family; the read does not need
            // alignment.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from_bits(u32::from_be(
                v4.sin_addr.s_addr,
            ))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for this family.
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
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn loopback_prefix_is_8() {
        let loopback = prefixes()
            .into_iter()
            .find(|(ip, _)| *ip == IpAddr::V4(Ipv4Addr::LOCALHOST));
        // A sandbox may have no interface that is up.
        assert!(loopback.is_none_or(|(_, bits)| bits == 8));
        assert_eq!(name(0), None);
        assert_eq!(name(u32::MAX), None);
    }
}
