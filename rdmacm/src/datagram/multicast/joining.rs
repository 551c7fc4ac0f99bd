//! Joins of multicast groups in progress.

use ibverbs::{Error, Result};

use super::{JoinAs, Membership, VERB};
use crate::active::{Resolver, Resolving};
use crate::address::{Address, PortSpace, UdAddress};
use crate::error::ConnectError;
use crate::event::{CmEventType, EventChannel, IdKey};
use crate::id::{Id, Path};
use crate::progress::{InProgress, already_finished, in_progress};

/// A multicast group being joined by [`Resolver::start_join`].
///
/// # Example
/// ```no_run
/// use rdmacm::datagram::multicast::{JoinAs, Joining};
/// use rdmacm::{InProgress, Resolver};
/// use std::time::Duration;
/// let joining: Joining = Resolver::new("239.1.2.3:0".parse()?).start_join(JoinAs::FULL_MEMBER)?;
/// // Do other work here.
/// let group = joining.wait(Some(Duration::from_secs(5)))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "rdma_join_multicast")]
#[derive(Debug)]
pub struct Joining {
    id: Option<Id>,
    channel: EventChannel,
    key: IdKey,
    group: Address,
    join_as: JoinAs,
    /// Set after the device is resolved.
    path: Option<Path>,
}

impl Resolver {
    /// Joins the multicast group at the resolver's address, an IPv4 or IPv6 multicast address with
    /// any port. The network interface is selected by [`source`](Self::source), by
    /// [`device`](Self::device), or by the system's routing table. Waits at most twice the
    /// [timeout](Self::timeout).
    ///
    /// In the port space UDP the group has a GID of its own. In [`IPOIB`](PortSpace::IPOIB) it has
    /// the GID that IP over InfiniBand uses.
    ///
    /// # Errors
    /// - [`ErrorKind::Unsupported`](ibverbs::ErrorKind::Unsupported) on iWARP, which has no
    ///   datagrams, and for IPv6 groups on RoCE v2, which Linux does not support.
    /// - [`ErrorKind::InvalidInput`](ibverbs::ErrorKind::InvalidInput) if the address is not a
    ///   multicast address.
    /// - Otherwise the same as [`resolve`](Self::resolve).
    #[doc(alias = "rdma_join_multicast_ex")]
    pub fn join(self, join_as: JoinAs) -> Result<Membership> {
        let limit = Resolving::<()>::limit(self.step_timeout());
        self.start_join(join_as)?.wait(Some(limit))
    }

    /// Starts to join without waiting for the result.
    ///
    /// # Errors
    /// Same as [`join`](Self::join), if the failure is immediate.
    #[doc(alias = "rdma_join_multicast")]
    pub fn start_join(self, join_as: JoinAs) -> Result<Joining> {
        let group = self.peer();
        if !group.is_multicast() {
            return Err(Error::new(
                ibverbs::ErrorKind::InvalidInput,
                VERB,
                format!("{group}: not a multicast address"),
            )
            .with_help("expected an IPv4 address in 224.0.0.0/4 or an IPv6 address in ff00::/8"));
        }
        let (id, source) = self.create_id(PortSpace::UDP)?;
        id.resolve_addr(source, group, self.step_timeout())?;
        let (channel, key) = (id.channel().clone(), id.key());
        Ok(Joining {
            id: Some(id),
            channel,
            key,
            group,
            join_as,
            path: None,
        })
    }
}

impl Joining {
    /// Processes the available events. Returns the path and the group's address after the group is
    /// joined.
    fn advance(&mut self, id: &Id) -> Result<Option<(Path, UdAddress)>> {
        while let Some(event) = id.try_event()? {
            match (event.event_type(), event.datagram(), &self.path) {
                (CmEventType::ADDR_RESOLVED, _, None) => {
                    let peer = match self.group {
                        Address::Ip(group) => group,
                        Address::Ib(group) => (group.gid.as_ipv6(), group.port()).into(),
                    };
                    let path = id.path_to(VERB, peer)?;
                    path.check_datagram(VERB)?;
                    id.join(self.group, self.join_as, &path)?;
                    self.path = Some(path);
                }
                (CmEventType::MULTICAST_JOIN, Some(address), Some(path)) => {
                    return Ok(Some((path.clone(), address)));
                }
                _ => return Err(ConnectError::from_event(VERB, &self.group, &event).into()),
            }
        }
        Ok(None)
    }

    /// Leaves the group. librdmacm releases the memory of a requested join only then.
    fn leave(&self, id: &Id) {
        if self.path.is_some() {
            // Called on drop and on errors, so there is no caller to report a failure to.
            let _ = id.leave(self.group, &self.group);
        }
    }
}

in_progress!(Joining: VERB, group);

impl InProgress for Joining {
    type Output = Membership;
    type Error = Error;

    fn try_finish(&mut self) -> Result<Option<Membership>> {
        let id = self
            .id
            .take()
            .ok_or_else(|| already_finished(VERB, &self.group))?;
        match self.advance(&id) {
            Ok(Some((path, address))) => Ok(Some(Membership::new(id, path, self.group, address))),
            Ok(None) => {
                self.id = Some(id);
                Ok(None)
            }
            Err(error) => {
                self.leave(&id);
                Err(error)
            }
        }
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.leave(&id);
        }
    }
}
