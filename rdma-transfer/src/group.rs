//! Peer groups: one call writes to several peers.

use ibverbs::{Error, ErrorKind, Result};

use crate::peer::{Peer, Write, submit};
use crate::region::{Region, RemoteRegion};
use crate::stripe::Span;
use crate::transfer::Transfer;

/// Peers with the region of each that this side writes to.
///
/// # Example
/// ```no_run
/// # use rdma_transfer::{Peer, PeerGroup, Region, RemoteRegion, Span};
/// # fn f(peers: Vec<(Peer, RemoteRegion)>, region: &Region) -> rdma_transfer::Result<()> {
/// # let timeout = std::time::Duration::from_secs(1);
/// let group = PeerGroup::new(peers);
/// // The same page to every peer:
/// group.broadcast(region, &[Span::new(0, 0, 4096)], Some(1))?.wait(timeout)?;
/// // Page i to peer i:
/// let pages: Vec<_> = (0..group.len()).map(|i| vec![Span::new(i * 4096, 0, 4096)]).collect();
/// group.scatter(region, &pages, Some(2))?.wait(timeout)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct PeerGroup {
    members: Vec<(Peer, RemoteRegion)>,
}

impl PeerGroup {
    /// Creates a group of these peers and their regions.
    pub fn new(members: impl IntoIterator<Item = (Peer, RemoteRegion)>) -> Self {
        Self {
            members: members.into_iter().collect(),
        }
    }

    /// Returns the number of peers.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns `true` if the group has no peers.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Writes the same ranges to each peer, as [`Peer::write`].
    ///
    /// # Errors
    /// Those of [`Peer::write`], if they apply to one of the peers. Nothing was written then.
    pub fn broadcast(&self, region: &Region, spans: &[Span], imm: Option<u32>) -> Result<Transfer> {
        let writes = self.writes(|_| spans);
        submit(&writes, region, imm)
    }

    /// Writes ranges of its own to each peer: `spans` has a list for each of them. A peer with an
    /// empty list receives only the immediate.
    ///
    /// # Errors
    /// Those of [`broadcast`](Self::broadcast), and [`ErrorKind::InvalidInput`] if the number of
    /// lists is not that of the peers.
    pub fn scatter(
        &self,
        region: &Region,
        spans: &[Vec<Span>],
        imm: Option<u32>,
    ) -> Result<Transfer> {
        if spans.len() != self.len() {
            let what = format!("{} lists for a group of {} peers", spans.len(), self.len());
            return Err(Error::new(ErrorKind::InvalidInput, "scatter", what));
        }
        let writes = self.writes(|index| &spans[index]);
        submit(&writes, region, imm)
    }

    fn writes<'a>(&'a self, spans: impl Fn(usize) -> &'a [Span]) -> Vec<Write<'a>> {
        let members = self.members.iter().enumerate();
        members
            .map(|(index, (peer, remote))| Write {
                peer,
                remote,
                spans: spans(index),
            })
            .collect()
    }
}
