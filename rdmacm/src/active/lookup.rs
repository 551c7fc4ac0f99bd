//! Name resolution whose result is an event (`rdma_resolve_addrinfo`).

use std::fmt;

use ibverbs::{Error, ErrorKind, Result};

use crate::address::{AddrInfo, IbAddr, LookupOptions, PortSpace, Query};
use crate::error::ConnectError;
use crate::event::{CmEventType, EventChannel, IdKey};
use crate::id::Id;
use crate::progress::{InProgress, already_finished, in_progress};

const VERB: &str = "rdma_resolve_addrinfo";

/// Starts to look up a host and a service, like [`lookup`](crate::address::lookup).
///
/// librdmacm queries the name services before this call returns. Only the result arrives as an
/// event, so that it can be awaited beside others.
///
/// # Example
/// ```no_run
/// use rdmacm::{InProgress, active::start_lookup, address::LookupOptions};
/// let pending = start_lookup(Some("storage"), Some("7471"), LookupOptions::new())?;
/// for address in pending.wait(None)? {
///     println!("{:?}", address.destination);
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # Errors
/// - [`ErrorKind::NotFound`] if the name is unknown.
/// - [`ErrorKind::Unsupported`] if the kernel or the installed rdma-core (60 or newer) lacks it.
///   [`lookup`](crate::address::lookup) works there.
/// - [`ErrorKind::InvalidInput`] if a name contains a NUL byte, or if both are `None`.
///
/// # References
/// [`rdma_resolve_addrinfo(3)`](https://github.com/linux-rdma/rdma-core/blob/master/librdmacm/man/rdma_resolve_addrinfo.3.in.rst)
#[doc(alias = "rdma_resolve_addrinfo")]
pub fn start_lookup(
    node: Option<&str>,
    service: Option<&str>,
    options: LookupOptions,
) -> Result<LookupPending> {
    let query = Query::new(VERB, node, service, options)?;
    LookupPending::start(Id::create(options.port_space, None)?, query)
}

/// Starts to look up a service by its name or its number at the subnet administrator of an
/// InfiniBand fabric. `source` is the port that queries it.
///
/// # Errors
/// - [`ErrorKind::Unsupported`] if the kernel or the installed rdma-core (60 or newer) lacks it.
/// - [`ErrorKind::NotFound`] if no InfiniBand port has the GID of `source`.
/// - [`ErrorKind::InvalidInput`] if the name contains a NUL byte.
///
/// # Example
/// ```no_run
/// use rdmacm::{InProgress, PortSpace, active::start_service_lookup, address::IbAddr};
/// let source = IbAddr::new("fe80::2:c903:0:1234".parse()?, PortSpace::IB, 0);
/// for address in start_service_lookup(source, "storage.example")?.wait(None)? {
///     println!("{:?}", address.destination_ib);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # References
/// [`rdma_resolve_addrinfo(3)`](https://github.com/linux-rdma/rdma-core/blob/master/librdmacm/man/rdma_resolve_addrinfo.3.in.rst)
#[doc(alias = "rdma_resolve_addrinfo")]
pub fn start_service_lookup(source: IbAddr, service: &str) -> Result<LookupPending> {
    let query = Query::new(VERB, None, Some(service), LookupOptions::new())?.of_subnet();
    let id = Id::create(PortSpace::IB, None)?;
    id.bind(source.into())?;
    LookupPending::start(id, query)
}

/// A lookup whose result has not arrived yet.
///
/// # Example
/// ```no_run
/// use rdmacm::{InProgress, active::{LookupPending, start_lookup}, address::LookupOptions};
/// let mut pending: LookupPending =
///     start_lookup(Some("storage"), None, LookupOptions::new())?;
/// if let Some(addresses) = pending.try_finish()? {
///     println!("{} addresses", addresses.len());
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`rdma_resolve_addrinfo(3)`](https://github.com/linux-rdma/rdma-core/blob/master/librdmacm/man/rdma_resolve_addrinfo.3.in.rst)
#[doc(alias = "rdma_resolve_addrinfo")]
pub struct LookupPending {
    id: Option<Id>,
    channel: EventChannel,
    key: IdKey,
    detail: String,
}

impl LookupPending {
    fn start(id: Id, query: Query) -> Result<Self> {
        id.resolve_addrinfo(VERB, &query)?;
        Ok(Self {
            channel: id.channel().clone(),
            key: id.key(),
            id: Some(id),
            detail: query.detail,
        })
    }

    fn advance(&mut self) -> Result<Option<Vec<AddrInfo>>> {
        let id = self.id.as_ref();
        let id = id.ok_or_else(|| already_finished(VERB, &self.detail))?;
        let Some(event) = id.try_event()? else {
            return Ok(None);
        };
        match event.event_type() {
            CmEventType::ADDRINFO_RESOLVED => id.query_addrinfo(&self.detail).map(Some),
            CmEventType::ADDRINFO_ERROR => {
                let what = format!("{}: not found (status {})", self.detail, event.status());
                Err(Error::new(ErrorKind::NotFound, VERB, what)
                    .with_help("check the service with `saquery -S`"))
            }
            _ => Err(ConnectError::from_event(VERB, &self.detail, &event).into()),
        }
    }
}

in_progress!(LookupPending: VERB, detail);

impl InProgress for LookupPending {
    type Output = Vec<AddrInfo>;
    type Error = Error;

    fn try_finish(&mut self) -> Result<Option<Vec<AddrInfo>>> {
        let result = self.advance();
        if !matches!(result, Ok(None)) {
            self.id = None;
        }
        result
    }
}

impl fmt::Debug for LookupPending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookupPending")
            .field("detail", &self.detail)
            .finish_non_exhaustive()
    }
}
