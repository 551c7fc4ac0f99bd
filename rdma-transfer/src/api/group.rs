//! Peer groups: one call writes to several peers.

use ibverbs::{Error, ErrorKind, Result};

use crate::api::peer::{Peer, Plan, submit};
use crate::api::transfer::Transfer;
use crate::memory::region::Region;
use crate::options::TransferOptions;
use crate::protocol::remote_region::RemoteRegion;
use crate::protocol::stripe::Span;
use crate::protocol::work::Operation;

/// Peers with the region of each that this side writes to.
///
/// # Example
/// ```no_run
/// # use rdma_transfer::{Peer, PeerGroup, Region, RemoteRegion, Span, TransferOptions};
/// # fn f(peers: Vec<(Peer, RemoteRegion)>, region: &Region) -> rdma_transfer::Result<()> {
/// # let timeout = std::time::Duration::from_secs(1);
/// let group = PeerGroup::new(peers);
/// // The same page to every peer:
/// let options = TransferOptions::new().imm(1);
/// group.broadcast(region, &[Span::new(0, 0, 4096)], options)?.wait(timeout)?;
/// // Page i to peer i:
/// let pages: Vec<_> = (0..group.len()).map(|i| vec![Span::new(i * 4096, 0, 4096)]).collect();
/// group.scatter(region, &pages, TransferOptions::new())?.wait(timeout)?;
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
    pub fn broadcast(
        &self,
        region: &Region,
        spans: &[Span],
        options: TransferOptions,
    ) -> Result<Transfer> {
        let plans = self.plans(|_| spans);
        submit(Operation::Write, &plans, region, options)
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
        options: TransferOptions,
    ) -> Result<Transfer> {
        if spans.len() != self.len() {
            let what = format!("{} lists for a group of {} peers", spans.len(), self.len());
            return Err(Error::new(ErrorKind::InvalidInput, "scatter", what));
        }
        let plans = self.plans(|index| spans[index].as_slice());
        submit(Operation::Write, &plans, region, options)
    }

    fn plans<'a>(&'a self, spans: impl Fn(usize) -> &'a [Span]) -> Vec<Plan<'a>> {
        let members = self.members.iter().enumerate();
        members
            .map(|(index, (peer, remote))| Plan {
                peer,
                remote,
                spans: spans(index),
            })
            .collect()
    }
}
