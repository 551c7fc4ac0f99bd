//! Remote access to memory: the keys of regions and of memory windows.

use rdma_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_WRITE,
    IBV_MW_TYPE_1, IBV_MW_TYPE_2, IBV_WC_LOC_QP_OP_ERR, IBV_WC_MW_BIND_ERR, IBV_WC_SUCCESS,
    ibv_sge, ibv_wc_status,
};

use crate::request::{Bind, Data, SendWr};
use crate::state::{Binding, DeviceState, Mw};

/// Bit that is set in keys of windows and clear in keys of regions.
pub(crate) const WINDOW_BIT: u32 = 1 << 31;

/// Bits of a key that the program chooses when it binds a window of type 2.
const TAG_BITS: u32 = 0xff;

impl DeviceState {
    /// Returns a key for an object in this slot. The upper bits are the slot, the lower bits a
    /// counter, so that an object in a reused slot has a different key.
    pub(crate) fn new_key(&mut self, slot: usize) -> u32 {
        self.next_key = (self.next_key + 1) % 0x100;
        (u32::try_from(slot).unwrap_or(0) + 1) << 8 | self.next_key
    }

    /// Returns the slot of the window with this key.
    fn window(&self, pd: usize, key: u32) -> Option<usize> {
        let slot = ((key & !WINDOW_BIT) >> 8).checked_sub(1)? as usize;
        let window = self.mws.get(slot)?;
        (window.key == key && window.pd == pd).then_some(slot)
    }

    /// Returns the access flags that a key grants to the peer of a queue pair for these bytes, and
    /// their address in the process. Returns `None` if the key does not cover all of them.
    #[inline]
    pub(crate) fn remote_access(
        &self,
        qp: usize,
        pd: usize,
        bytes: &ibv_sge,
    ) -> Option<(u32, ibv_sge)> {
        let key = bytes.lkey;
        if key & WINDOW_BIT == 0 {
            return self
                .region(pd, key)
                .filter(|region| region.covers(bytes))
                .map(|region| (region.access, region.in_memory(bytes)));
        }
        let bound = self.mws.get(self.window(pd, key)?)?.bound.as_ref()?;
        let end = bytes.addr.checked_add(bytes.length.into())?;
        let within = bytes.addr >= bound.address && end <= bound.address + u64::from(bound.length);
        let located = self.mrs.get(bound.mr)?.in_memory(bytes);
        (within && bound.qp.is_none_or(|only| only == qp)).then_some((bound.access, located))
    }

    /// Executes a request to bind a window, or to unbind one of type 1.
    pub(crate) fn bind(&mut self, qp: usize, send: &SendWr) -> ibv_wc_status {
        match &send.data {
            Data::Bind(bind) => self
                .try_bind(qp, send.remote.rkey, bind)
                .map_or(IBV_WC_MW_BIND_ERR, |()| IBV_WC_SUCCESS),
            _ => IBV_WC_LOC_QP_OP_ERR,
        }
    }

    fn try_bind(&mut self, qp: usize, key: u32, bind: &Bind) -> Option<()> {
        let pd = self.qps.get(qp)?.pd;
        let &Mw {
            kind,
            key: old,
            ref bound,
            ..
        } = self.mws.get(bind.mw).filter(|window| window.pd == pd)?;
        let allowed = kind == IBV_MW_TYPE_1 || (bound.is_none() && key != old && bind.length > 0);
        if !allowed || key & !TAG_BITS != old & !TAG_BITS {
            return None;
        }
        let bound = if bind.length == 0 {
            None
        } else {
            Some(self.binding(qp, pd, kind, bind)?)
        };
        let window = self.mws.get_mut(bind.mw)?;
        (window.key, window.bound) = (key, bound);
        Some(())
    }

    /// Returns the binding for a window, if the region allows it.
    fn binding(&self, qp: usize, pd: usize, kind: u32, bind: &Bind) -> Option<Binding> {
        let (mr, address, length) = (bind.mr?, bind.address, u32::try_from(bind.length).ok()?);
        let writes = bind.access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) != 0;
        let needed = IBV_ACCESS_MW_BIND | if writes { IBV_ACCESS_LOCAL_WRITE } else { 0 };
        let region = self
            .mrs
            .get(mr)
            .filter(|region| region.pd == pd && region.access & needed == needed)?;
        let covered = region.covers(&ibv_sge {
            addr: address,
            length,
            lkey: 0,
        });
        let qp = (kind == IBV_MW_TYPE_2).then_some(qp);
        covered.then_some(Binding {
            mr,
            address,
            length,
            access: bind.access,
            qp,
        })
    }

    /// Invalidates a binding of type 2, if it belongs to this queue pair.
    pub(crate) fn unbind(&mut self, qp: usize, key: u32) -> Option<()> {
        let slot = self.window(self.qps.get(qp)?.pd, key)?;
        let window = self.mws.get_mut(slot)?;
        if window.bound.as_ref()?.qp != Some(qp) {
            return None;
        }
        window.bound = None;
        Some(())
    }

    /// Returns the number of windows that are bound to a region.
    pub(crate) fn windows_of_region(&self, mr: usize) -> usize {
        self.mws
            .iter()
            .filter(|window| window.bound.as_ref().is_some_and(|bound| bound.mr == mr))
            .count()
    }

    /// Returns the number of windows that are bound to a queue pair.
    pub(crate) fn windows_of_pair(&self, qp: usize) -> usize {
        self.mws
            .iter()
            .filter(|window| {
                window
                    .bound
                    .as_ref()
                    .is_some_and(|bound| bound.qp == Some(qp))
            })
            .count()
    }
}
