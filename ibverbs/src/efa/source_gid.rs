//! Completions with the GID of the sender.

#![allow(unsafe_code)]

use rdma_sys::{
    EFADV_WC_EX_WITH_SGID, IBV_WC_SUCCESS, efadv_cq_from_ibv_cq_ex, efadv_cq_init_attr,
    efadv_create_cq, efadv_wc_read_sgid, ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_gid,
};

use super::query::size_of_struct;
use crate::cq::private::Sealed;
use crate::cq::{CompletionEx, EntryEx, FieldSet, WcFields};
use crate::gid::Gid;
use crate::identity::Direction;

/// The GID of the sender, as additional field of a completion queue
/// ([`EfaCaps::CQ_WITH_SGID`](super::EfaCaps::CQ_WITH_SGID)).
///
/// A receiver needs it to answer a sender for which it has no address handle.
///
/// # Example
/// ```no_run
/// use ibverbs::{AhAttr, CqOptions, ProtectionDomain, QueuePair, Retired};
/// use ibverbs::{cq_ex::CompletionQueueEx, efa::{SourceGid, Srd}, wr::Destination};
/// # const QKEY: ibverbs::Qkey = ibverbs::Qkey(0x1111_1111);
/// # fn create(context: &ibverbs::Context) -> ibverbs::Result<()> {
/// let mut cq = context.create_cq_ex(CqOptions::default(), SourceGid)?;
/// # Ok(()) }
/// # fn f(pd: &ProtectionDomain, cq: &mut CompletionQueueEx<SourceGid>, qp: &mut QueuePair<Srd>)
/// #     -> ibverbs::Result<()> {
/// for completion in cq.poll()? {
///     let qpn = completion.source().qpn;
///     if let Some(gid) = completion.source_gid() {
///         let address = pd.create_ah(&AhAttr::for_gid(1, 0, gid))?;
///         let sender = Destination { address: qp.hold_address(&address)?, qpn, qkey: QKEY };
///     }
///     qp.retire(completion.into())?.check()?;
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "efadv_create_cq")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceGid;

impl Sealed for SourceGid {}

impl FieldSet for SourceGid {
    const FLAGS: u32 = 0;
    const NAMES: [Option<&'static str>; 4] = [Some("source GID"), None, None, None];
    const CREATE: &str = "efadv_create_cq";
    // A failed `ibv_next_poll` of libefa before version 61 damages the table of requests
    // (docs/drivers.md, fault 53).
    const ONE_BY_ONE: bool = true;

    unsafe fn create(context: *mut ibv_context, attr: &mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex {
        let mut efa = efadv_cq_init_attr {
            wc_flags: EFADV_WC_EX_WITH_SGID.into(),
            ..Default::default()
        };
        let size = size_of_struct(&efa);
        // SAFETY: guaranteed by the caller; libefa accepts contexts of all providers. The size is
        // that of the structure.
        unsafe { efadv_create_cq(context, attr, &raw mut efa, size) }
    }

    fn has_readers(_: &ibv_cq_ex) -> bool {
        // libefa sets the function of each queue with the flag (ci/provider_functions.md).
        true
    }

    #[inline]
    unsafe fn read(cq: *mut ibv_cq_ex, entry: &mut EntryEx) {
        entry.source_gid = None;
        if entry.wc.status != IBV_WC_SUCCESS || entry.wc.wr_id().direction() != Direction::Recv {
            return;
        }
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: the caller guarantees a current completion, and `create` selected the field. All
        // bytes of the union were initialized.
        entry.source_gid = unsafe {
            let known = efadv_wc_read_sgid(efadv_cq_from_ibv_cq_ex(cq), &raw mut gid) != 0;
            (!known).then_some(gid.raw)
        };
    }
}

impl CompletionEx<'_, SourceGid> {
    /// Returns the GID of the sender of a received message. It is `None` if the device has an
    /// address handle for the sender in the protection domain of the queue pair: the number of that
    /// handle is the [`slid`](crate::UdSource::slid) of the [`source`](crate::Completion::source),
    /// and [`AddressHandle::efa_number`](crate::AddressHandle::efa_number) returns it. It is also
    /// `None` for sends and failures.
    #[doc(alias = "efadv_wc_read_sgid")]
    pub fn source_gid(&self) -> Option<Gid> {
        self.entry.source_gid.map(Gid)
    }
}
