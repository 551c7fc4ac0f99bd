//! Automatic path migration: an alternate path that the device uses when the primary path fails.

use rdma_sys::ibv_qp_attr;

use crate::ah::AhAttr;
use rdma_types::{c_value, setters};

c_value! {
    /// The state of a path migration (`enum ibv_mig_state`).
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{QpState, QueuePair, Rc, qp::{MigState, QpChange}};
    /// # fn f(qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
    /// if qp.query()?.path_mig_state == MigState::ARMED {
    ///     qp.modify(&QpChange::to(QpState::RTS).path_mig_state(MigState::MIGRATED))?; // migrate
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html); IBA 17.2.8
    #[doc(alias = "ibv_modify_qp")]
    pub struct MigState(u32) {
        /// The connection has migrated, or never had an alternate path.
        MIGRATED = rdma_sys::IBV_MIG_MIGRATED => "MIGRATED",
        /// Requests that both sides load the alternate path. Programs set this value.
        REARM = rdma_sys::IBV_MIG_REARM => "REARM",
        /// Both sides have loaded the alternate path. The device migrates if the primary fails.
        ARMED = rdma_sys::IBV_MIG_ARMED => "ARMED",
    }
}

/// An alternate path to the peer. The device migrates to it when the primary path fails, if both
/// sides have [armed](MigState::REARM) it. Available on InfiniBand links only.
///
/// # Example
/// ```no_run
/// use ibverbs::{
///     AhAttr, Lid, QpState, QueuePair, Rc,
///     qp::{AlternatePath, MigState, QpChange},
/// };
/// # fn f(qp: &mut QueuePair<Rc>) -> Result<(), ibverbs::Error> {
/// let alternate = AlternatePath::new(AhAttr::for_lid(2, Lid(7))).timeout(16);
/// qp.modify(&QpChange::to(QpState::RTS).alternate(alternate).path_mig_state(MigState::REARM))
/// # }
/// ```
///
/// # References
/// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html); IBA 17.2.8
#[doc(alias = "ibv_modify_qp")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AlternatePath {
    /// Address of the peer, from a port of this device.
    pub address: AhAttr,
    /// Index of the partition key at that port. Default: `0`.
    pub pkey_index: u16,
    /// Acknowledgement timeout: 4.096 µs × 2^timeout, 0 to 31. 0 waits forever. Default: `14`
    /// (67 ms).
    pub timeout: u8,
}

setters! {
    AlternatePath {
        address: AhAttr,
        pkey_index: u16,
        timeout: u8,
    }
}

impl AlternatePath {
    /// Creates the alternate path to this address, with defaults for everything else.
    pub const fn new(address: AhAttr) -> Self {
        Self {
            address,
            pkey_index: 0,
            timeout: 14,
        }
    }

    /// Returns the alternate path in the attributes of a queue pair, or `None`.
    pub(crate) fn from_raw(attr: &ibv_qp_attr) -> Option<Self> {
        (attr.alt_port_num != 0).then(|| Self {
            address: AhAttr::from_raw(&attr.alt_ah_attr).port_num(attr.alt_port_num),
            pkey_index: attr.alt_pkey_index,
            timeout: attr.alt_timeout,
        })
    }

    pub(crate) fn write_to(self, attr: &mut ibv_qp_attr) {
        attr.alt_ah_attr = self.address.to_raw();
        attr.alt_port_num = self.address.port_num;
        attr.alt_pkey_index = self.pkey_index;
        attr.alt_timeout = self.timeout;
    }
}
