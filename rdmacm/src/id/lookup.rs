//! Name resolution on an identifier.

#![allow(unsafe_code)]

use std::ptr;

use ibverbs::{Errno, Error, ErrorKind, Result};
use rdma_sys::{rdma_query_addrinfo, rdma_resolve_addrinfo};

use super::Id;
use crate::address::{AddrInfo, Query, lookup_error, take_list};
use crate::convert::{failed, zero_or_last};

impl Id {
    /// Starts a lookup. Its result is an event.
    pub(crate) fn resolve_addrinfo(&self, verb: &'static str, query: &Query) -> Result<()> {
        // SAFETY: `self` keeps the identifier alive. The names are null or NUL-terminated, and all
        // pointers are valid during the call.
        let returned = unsafe {
            rdma_resolve_addrinfo(self.as_ptr(), query.node(), query.service(), query.hints())
        };
        if returned == 0 {
            return Ok(());
        }
        match Errno::last() {
            // librdmacm replaces the error number of a failed command by -1. Older kernels lack
            // the command.
            Errno(-1) => {
                let what = format!("{}: the kernel refused the command", query.detail);
                Err(Error::new(ErrorKind::Unsupported, verb, what).with_help(
                    "use `address::lookup`, or a newer kernel \
                     (RDMA_USER_CM_CMD_WRITE_CM_EVENT, RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE)",
                ))
            }
            // It passes on the codes of `getaddrinfo`, which are negative.
            Errno(code) if code < 0 => Err(lookup_error(verb, code, &query.detail)),
            errno => Err(failed(verb, errno, &query.detail)),
        }
    }

    /// Returns the result of a lookup, after its event.
    pub(crate) fn query_addrinfo(&self, detail: &str) -> Result<Vec<AddrInfo>> {
        let mut list = ptr::null_mut();
        // SAFETY: `self` keeps the identifier alive, and the pointer is writable.
        let returned = unsafe { rdma_query_addrinfo(self.as_ptr(), &raw mut list) };
        zero_or_last("rdma_query_addrinfo", &detail, returned)?;
        // SAFETY: librdmacm returned a new list.
        Ok(unsafe { take_list(list) })
    }
}
