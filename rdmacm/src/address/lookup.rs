//! From names to addresses.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};
use std::net::SocketAddr;
use std::ptr;

use ibverbs::{Errno, Error, ErrorKind, Result};
use rdma_sys::{RAI_NUMERICHOST, RAI_PASSIVE, rdma_addrinfo, rdma_freeaddrinfo, rdma_getaddrinfo};

use super::{PortSpace, from_raw};
use crate::convert::failed;

const VERB: &str = "rdma_getaddrinfo";

/// The flag, which C's structure has as a signed number.
const PASSIVE: i32 = RAI_PASSIVE as i32;
const NUMERIC_HOST: i32 = RAI_NUMERICHOST as i32;

/// What is looked up beside the name.
///
/// # Example
/// Where to listen for connections:
/// ```no_run
/// use rdmacm::address::{LookupOptions, lookup};
/// let options = LookupOptions {
///     passive: true,
///     numeric_host: true,
///     ..LookupOptions::default()
/// };
/// let listen_on = lookup(Some("0.0.0.0"), Some("7471"), options)?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`rdma_getaddrinfo(3)`](https://man7.org/linux/man-pages/man3/rdma_getaddrinfo.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupOptions {
    /// To listen there, rather than to connect.
    pub passive: bool,
    /// The name must be an address in digits: no name service is asked.
    pub numeric_host: bool,
    /// Whose ports are meant.
    pub port_space: PortSpace,
}

impl Default for LookupOptions {
    fn default() -> Self {
        Self {
            passive: false,
            numeric_host: false,
            port_space: PortSpace::TCP,
        }
    }
}

/// An address that a name stands for (`struct rdma_addrinfo`).
///
/// # Example
/// ```no_run
/// use rdmacm::address::{AddrInfo, LookupOptions, lookup};
/// let addresses: Vec<AddrInfo> = lookup(Some("storage"), Some("7471"), LookupOptions::default())?;
/// for resolver in addresses.iter().filter_map(AddrInfo::resolver) {
///     if let Ok(route) = resolver.resolve() {
///         println!("over {}", route.device_name());
///     }
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`rdma_getaddrinfo(3)`](https://man7.org/linux/man-pages/man3/rdma_getaddrinfo.3.html)
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddrInfo {
    /// Whose port it is.
    pub port_space: PortSpace,
    /// Where from, or where to listen.
    pub source: Option<SocketAddr>,
    /// Where to.
    pub destination: Option<SocketAddr>,
}

/// Looks up a host and a service, each by name or number, as the system's name services and, where
/// it runs, the InfiniBand communication management assistant know them.
///
/// # Example
/// ```no_run
/// let all = rdmacm::address::lookup(
///     Some("storage-7"),
///     Some("7471"),
///     rdmacm::LookupOptions::default(),
/// )?;
/// let route = all
///     .iter()
///     .find_map(rdmacm::AddrInfo::resolver)
///     .ok_or("no address")?
///     .resolve()?;
/// println!("over {}", route.device_name());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ErrorKind::NotFound`]: nobody knows the name; [`ErrorKind::InvalidInput`]: a name with a zero byte in it, or neither name.
///
/// # References
/// [`rdma_getaddrinfo(3)`](https://man7.org/linux/man-pages/man3/rdma_getaddrinfo.3.html)
pub fn lookup(
    node: Option<&str>,
    service: Option<&str>,
    options: LookupOptions,
) -> Result<Vec<AddrInfo>> {
    let what = format!(
        "{} service {}",
        node.unwrap_or("any host"),
        service.unwrap_or("any")
    );
    if node.is_none() && service.is_none() {
        return Err(Error::new(ErrorKind::InvalidInput, VERB, what)
            .with_hint("give a host, a service, or both"));
    }
    let c_string = |text: Option<&str>| {
        let made = text.map(CString::new).transpose();
        made.map_err(|_| {
            Error::new(
                ErrorKind::InvalidInput,
                VERB,
                format!("{what:?}: a zero byte"),
            )
        })
    };
    let (c_node, c_service) = (c_string(node)?, c_string(service)?);
    let as_ptr = |text: &Option<CString>| {
        text.as_ref()
            .map_or(ptr::null_mut(), |text| text.as_ptr().cast_mut())
    };
    let hints = rdma_addrinfo {
        ai_flags: if options.passive { PASSIVE } else { 0 }
            | if options.numeric_host {
                NUMERIC_HOST
            } else {
                0
            },
        ai_port_space: options.port_space.0 as i32,
        ..Default::default()
    };
    let mut list = ptr::null_mut();
    // SAFETY: names are null or NUL-terminated, hints valid during the call, the place valid for
    // writing.
    let returned = unsafe {
        rdma_getaddrinfo(
            as_ptr(&c_node),
            as_ptr(&c_service),
            &raw const hints,
            &raw mut list,
        )
    };
    match returned {
        0 => {}
        -1 => return Err(failed(VERB, Errno::last(), &what)),
        code => return Err(unknown(code, &what)),
    }
    let mut all = Vec::new();
    let mut next: *const rdma_addrinfo = list;
    // SAFETY: the list is the library's, linked to a null end, alive until it is freed below; its
    // addresses are null or of the family they say.
    while let Some(info) = unsafe { next.as_ref() } {
        // SAFETY: as above.
        let read = |address: *mut libc::sockaddr| {
            (!address.is_null())
                .then(|| unsafe { from_raw(address) })
                .flatten()
        };
        all.push(AddrInfo {
            port_space: PortSpace(info.ai_port_space.unsigned_abs()),
            source: read(info.ai_src_addr),
            destination: read(info.ai_dst_addr),
        });
        next = info.ai_next;
    }
    // SAFETY: freed once, and nothing of it is kept.
    unsafe { rdma_freeaddrinfo(list) };
    Ok(all)
}

/// What the name service answered (`EAI_…`).
fn unknown(code: i32, what: &str) -> Error {
    // SAFETY: for every number a text that lives for ever.
    let text: *const c_char = unsafe { libc::gai_strerror(code) };
    // SAFETY: as above, NUL-terminated.
    let text = unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned();
    Error::new(ErrorKind::NotFound, VERB, format!("{what}: {text}"))
        .with_hint("`getent ahosts NAME` shows what the system knows")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_name_is_refused_before_anyone_is_asked() {
        let options = LookupOptions::default();
        for (node, service) in [(None, None), (Some("a\0b"), None), (Some("a"), Some("1\0"))] {
            let error = lookup(node, service, options).expect_err("no name");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
    }
}
