//! A multicast group being joined.

use std::os::fd::{AsFd, BorrowedFd};

use ibverbs::{Error, Result};

use super::{JoinAs, Membership, VERB};
use crate::active::{Resolver, Resolving};
use crate::address::{Address, PortSpace, UdAddress};
use crate::error::ConnectError;
use crate::event::{CmEventType, EventChannel};
use crate::id::{Id, Path};
use crate::progress::sealed::Sealed;
use crate::progress::{InProgress, already_finished};
use crate::wait::Descriptor;

/// A multicast group being joined by [`Resolver::start_join`].
///
/// # Example
/// ```no_run
/// use rdmacm::datagram::multicast::{JoinAs, Joining};
/// use rdmacm::{InProgress, Resolver};
/// use std::time::Duration;
/// let joining: Joining = Resolver::new("239.1.2.3:0".parse()?).start_join(JoinAs::FULL_MEMBER)?;
/// // other work, and then
/// let group = joining.wait(Some(Duration::from_secs(5)))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # References
/// [`rdma_join_multicast(3)`](https://man7.org/linux/man-pages/man3/rdma_join_multicast.3.html)
#[derive(Debug)]
pub struct Joining {
    id: Option<Id>,
    channel: EventChannel,
    group: Address,
    how: JoinAs,
    /// Once the device is known.
    path: Option<Path>,
}

impl Resolver {
    /// Joins the multicast group whose address the resolver was made for, an IPv4 or IPv6 multicast
    /// address; the port does not matter. The network interface is that of
    /// [`source`](Self::source) or [`device`](Self::device), or as the system's routing chooses.
    /// Waits twice the [timeout](Self::timeout) at most.
    ///
    /// In the port space UDP a group has an address of its own, in [`IPOIB`](PortSpace::IPOIB) that
    /// of IP over InfiniBand.
    ///
    /// # Errors
    /// - [`ErrorKind::Unsupported`](ibverbs::ErrorKind::Unsupported) on iWARP, which has no
    ///   datagrams, and for IPv6 groups on RoCE v2, which Linux does not have;
    /// - [`ErrorKind::InvalidInput`](ibverbs::ErrorKind::InvalidInput): no multicast address;
    /// - as [`resolve`](Self::resolve).
    ///
    /// # References
    /// [`rdma_join_multicast_ex(3)`](https://man7.org/linux/man-pages/man3/rdma_join_multicast_ex.3.html)
    pub fn join(self, how: JoinAs) -> Result<Membership> {
        let limit = Resolving::<()>::limit(self.step_timeout());
        self.start_join(how)?.wait(Some(limit))
    }

    /// Begins to join, and does not wait.
    ///
    /// # Errors
    /// As [`join`](Self::join), as far as they are known at once.
    ///
    /// # References
    /// [`rdma_join_multicast(3)`](https://man7.org/linux/man-pages/man3/rdma_join_multicast.3.html)
    pub fn start_join(self, how: JoinAs) -> Result<Joining> {
        let group = self.peer();
        if !group.is_multicast() {
            return Err(Error::new(
                ibverbs::ErrorKind::InvalidInput,
                VERB,
                format!("{group}: no multicast address"),
            )
            .with_hint("IPv4: 224.0.0.0 to 239.255.255.255; IPv6: ff00::/8"));
        }
        let (id, source) = self.create_id(PortSpace::UDP)?;
        id.resolve_addr(source, group, self.step_timeout())?;
        let channel = id.channel().clone();
        Ok(Joining {
            id: Some(id),
            channel,
            group,
            how,
            path: None,
        })
    }
}

impl Joining {
    /// Goes as far as the events lead; where the group is, at the end.
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
                    id.join(self.group, self.how, &path)?;
                    self.path = Some(path);
                }
                (CmEventType::MULTICAST_JOIN, Some(target), Some(path)) => {
                    return Ok(Some((path.clone(), target)));
                }
                _ => return Err(ConnectError::from_event(VERB, &self.group, &event).into()),
            }
        }
        Ok(None)
    }

    /// What librdmacm keeps of a group that it was told to join goes only when it is left.
    fn give_up(&self, id: &Id) {
        if self.path.is_some() {
            // There is nobody who could be told.
            let _ = id.leave(self.group, &self.group);
        }
    }
}

impl Sealed for Joining {
    const VERB: &'static str = VERB;

    fn what(&self) -> String {
        self.group.to_string()
    }

    fn descriptor(&self) -> Descriptor {
        self.channel.descriptor()
    }
}

impl InProgress for Joining {
    type Output = Membership;
    type Error = Error;

    fn try_finish(&mut self) -> Result<Option<Membership>> {
        let id = self
            .id
            .take()
            .ok_or_else(|| already_finished(VERB, &self.group))?;
        match self.advance(&id) {
            Ok(Some((path, target))) => Ok(Some(Membership::new(id, path, self.group, target))),
            Ok(None) => {
                self.id = Some(id);
                Ok(None)
            }
            Err(error) => {
                self.give_up(&id);
                Err(error)
            }
        }
    }
}

impl AsFd for Joining {
    /// Readable when there is something to do: call [`try_finish`](InProgress::try_finish).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.give_up(&id);
        }
    }
}
