//! Name resolution (`rdma_getaddrinfo`).

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};
use std::net::SocketAddr;
use std::ptr;

use ibverbs::{Errno, Error, ErrorKind, Result};
use rdma_sys::{
    RAI_NUMERICHOST, RAI_PASSIVE, RAI_SA, rdma_addrinfo, rdma_freeaddrinfo, rdma_getaddrinfo,
};
use rdma_types::setters;

use super::{Address, IbAddr, PortSpace, address_from_raw};
use crate::convert::failed;
use crate::library;

const VERB: &str = "rdma_getaddrinfo";

/// Flags in the signed type of the C structure.
const PASSIVE: i32 = RAI_PASSIVE as i32;
const NUMERIC_HOST: i32 = RAI_NUMERICHOST as i32;
const SUBNET: i32 = RAI_SA as i32;

/// Options of a name lookup.
///
/// # Example
/// Look up an address to listen on:
/// ```no_run
/// use rdmacm::address::{LookupOptions, lookup};
/// let options = LookupOptions::new().passive(true).numeric_host(true);
/// let listen_on = lookup(Some("0.0.0.0"), Some("7471"), options)?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "rdma_getaddrinfo")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookupOptions {
    /// Looks up an address to listen on rather than to connect to. Default: `false`.
    pub passive: bool,
    /// Accepts only numeric addresses, without querying a name service. Default: `false`.
    pub numeric_host: bool,
    /// Port space of the service. Default: [`PortSpace::TCP`].
    pub port_space: PortSpace,
}

impl LookupOptions {
    /// Returns the default options.
    pub const fn new() -> Self {
        Self {
            passive: false,
            numeric_host: false,
            port_space: PortSpace::TCP,
        }
    }
}

impl Default for LookupOptions {
    fn default() -> Self {
        Self::new()
    }
}

setters! {
    LookupOptions {
        passive: bool,
        numeric_host: bool,
        port_space: PortSpace,
    }
}

/// An address found by [`lookup`] (`struct rdma_addrinfo`).
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
#[doc(alias = "rdma_getaddrinfo")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddrInfo {
    /// Port space of the addresses.
    pub port_space: PortSpace,
    /// Source address, or the address to listen on.
    pub source: Option<SocketAddr>,
    /// Destination address.
    pub destination: Option<SocketAddr>,
    /// Destination on an InfiniBand fabric, from
    /// [`start_service_lookup`](crate::active::start_service_lookup).
    pub destination_ib: Option<IbAddr>,
}

/// Looks up a host and a service, each given by name or number. Queries the system's name services
/// and, if it is running, the InfiniBand communication management assistant (`ibacm`).
///
/// # Example
/// ```no_run
/// let addresses = rdmacm::address::lookup(
///     Some("storage-7"),
///     Some("7471"),
///     rdmacm::address::LookupOptions::default(),
/// )?;
/// let route = addresses
///     .iter()
///     .find_map(rdmacm::address::AddrInfo::resolver)
///     .ok_or("no address found")?
///     .resolve()?;
/// println!("over {}", route.device_name());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ErrorKind::NotFound`] if the name is unknown. [`ErrorKind::InvalidInput`] if a name contains a
/// NUL byte, or if both `node` and `service` are `None`.
#[doc(alias = "rdma_getaddrinfo")]
pub fn lookup(
    node: Option<&str>,
    service: Option<&str>,
    options: LookupOptions,
) -> Result<Vec<AddrInfo>> {
    let query = Query::new(VERB, node, service, options)?;
    let mut list = ptr::null_mut();
    library::prepare(VERB)?;
    // SAFETY: all pointers are valid during the call.
    let returned = unsafe {
        rdma_getaddrinfo(
            query.node().cast_mut(),
            query.service().cast_mut(),
            query.hints(),
            &raw mut list,
        )
    };
    match returned {
        // SAFETY: librdmacm returned a new list.
        0 => Ok(unsafe { take_list(list) }),
        -1 => Err(failed(VERB, Errno::last(), &query.detail)),
        code => Err(lookup_error(VERB, code, &query.detail)),
    }
}

/// The arguments of a lookup in C.
pub(crate) struct Query {
    node: Option<CString>,
    service: Option<CString>,
    hints: rdma_addrinfo,
    pub(crate) detail: String,
}

impl Query {
    pub(crate) fn new(
        verb: &'static str,
        node: Option<&str>,
        service: Option<&str>,
        options: LookupOptions,
    ) -> Result<Self> {
        let detail = format!(
            "{} service {}",
            node.unwrap_or("any host"),
            service.unwrap_or("any")
        );
        if node.is_none() && service.is_none() {
            return Err(Error::new(ErrorKind::InvalidInput, verb, detail)
                .with_help("specify a host, a service, or both"));
        }
        let c_string = |text: Option<&str>| {
            let converted = text.map(CString::new).transpose();
            converted.map_err(|_| {
                Error::new(
                    ErrorKind::InvalidInput,
                    verb,
                    format!("{detail:?}: the name contains a NUL byte"),
                )
            })
        };
        let flag = |set, flag| if set { flag } else { 0 };
        Ok(Self {
            node: c_string(node)?,
            service: c_string(service)?,
            hints: rdma_addrinfo {
                ai_flags: flag(options.passive, PASSIVE) | flag(options.numeric_host, NUMERIC_HOST),
                ai_port_space: options.port_space.0 as i32,
                ..Default::default()
            },
            detail,
        })
    }

    /// Looks up a service at the subnet administrator of InfiniBand instead of a host.
    pub(crate) fn of_subnet(mut self) -> Self {
        self.hints.ai_flags |= SUBNET;
        self
    }

    pub(crate) fn node(&self) -> *const c_char {
        self.node.as_ref().map_or(ptr::null(), |text| text.as_ptr())
    }

    pub(crate) fn service(&self) -> *const c_char {
        let text = self.service.as_ref();
        text.map_or(ptr::null(), |text| text.as_ptr())
    }

    pub(crate) fn hints(&self) -> *const rdma_addrinfo {
        &raw const self.hints
    }
}

/// Copies a list, and frees it.
///
/// # Safety
/// librdmacm returned the list, and nothing else refers to it.
pub(crate) unsafe fn take_list(list: *mut rdma_addrinfo) -> Vec<AddrInfo> {
    let mut addresses = Vec::new();
    let mut next: *const rdma_addrinfo = list;
    // SAFETY: the list ends with a null pointer. It stays valid until it is freed below.
    while let Some(info) = unsafe { next.as_ref() } {
        let read = |address: *mut libc::sockaddr| {
            (!address.is_null())
                // SAFETY: an address of the list is valid for its family if it is not null.
                .then(|| unsafe { address_from_raw(address) })
                .flatten()
        };
        let ip = |address| match address {
            Some(Address::Ip(address)) => Some(address),
            _ => None,
        };
        let destination = read(info.ai_dst_addr);
        addresses.push(AddrInfo {
            port_space: PortSpace(info.ai_port_space.unsigned_abs()),
            source: ip(read(info.ai_src_addr)),
            destination: ip(destination),
            destination_ib: match destination {
                Some(Address::Ib(address)) => Some(address),
                _ => None,
            },
        });
        next = info.ai_next;
    }
    // SAFETY: the list is freed once, and no reference to it is left.
    unsafe { rdma_freeaddrinfo(list) };
    addresses
}

/// Converts an `EAI_…` code to an error.
pub(crate) fn lookup_error(verb: &'static str, code: i32, detail: &str) -> Error {
    // SAFETY: the function accepts every number.
    let text: *const c_char = unsafe { libc::gai_strerror(code) };
    // SAFETY: the function returns a static NUL-terminated string.
    let text = unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned();
    Error::new(ErrorKind::NotFound, verb, format!("{detail}: {text}"))
        .with_help("check the name with `getent ahosts NAME`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_are_rejected() {
        let options = LookupOptions::default();
        for (node, service) in [(None, None), (Some("a\0b"), None), (Some("a"), Some("1\0"))] {
            let error = lookup(node, service, options).expect_err("an invalid name");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
    }
}
