//! What keys open to a peer: regions, and windows to them.

use rdma_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_WRITE,
    IBV_MW_TYPE_1, IBV_MW_TYPE_2, IBV_WC_LOC_QP_OP_ERR, IBV_WC_MW_BIND_ERR, IBV_WC_SUCCESS,
    ibv_sge, ibv_wc_status,
};

use crate::request::{Bind, Data, SendWr};
use crate::world::{Binding, Mw, World};

/// The bit of a key that windows have and regions have not.
pub(crate) const WINDOW: u32 = 1 << 31;

/// The bits of a key that the user of a window of type 2 chooses.
const USERS: u32 = 0xff;

impl World {
    /// A key for what gets this place: the place above, a count below, so that a key that is used
    /// again is another one.
    pub(crate) fn new_key(&mut self, place: usize) -> u32 {
        self.next_key = (self.next_key + 1) % 0x100;
        (u32::try_from(place).unwrap_or(0) + 1) << 8 | self.next_key
    }

    /// The place of the window with this key.
    fn window(&self, pd: usize, key: u32) -> Option<usize> {
        let place = ((key & !WINDOW) >> 8).checked_sub(1)? as usize;
        let window = self.mws.get(place)?;
        (window.key == key && window.pd == pd).then_some(place)
    }

    /// What a key opens of these bytes, in this domain, to the peer of this queue pair; `None` if
    /// not all of them.
    #[inline]
    pub(crate) fn opened(&self, qp: usize, pd: usize, bytes: &ibv_sge) -> Option<u32> {
        let key = bytes.lkey;
        if key & WINDOW == 0 {
            return self
                .region(pd, key)
                .filter(|region| region.covers(bytes))
                .map(|region| region.access);
        }
        let bound = self.mws.get(self.window(pd, key)?)?.bound.as_ref()?;
        let end = bytes.addr.checked_add(bytes.length.into())?;
        let within = bytes.addr >= bound.address && end <= bound.address + u64::from(bound.length);
        (within && bound.qp.is_none_or(|only| only == qp)).then_some(bound.access)
    }

    /// Does a request to bind a window, or to unbind one of type 1.
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
        let fresh = kind == IBV_MW_TYPE_1 || (bound.is_none() && key != old && bind.length > 0);
        if !fresh || key & !USERS != old & !USERS {
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

    /// What a window would open: part of a region that allows it.
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

    /// Ends the binding of type 2 that a key names, if it was made for this queue pair.
    pub(crate) fn unbind(&mut self, qp: usize, key: u32) -> Option<()> {
        let place = self.window(self.qps.get(qp)?.pd, key)?;
        let window = self.mws.get_mut(place)?;
        if window.bound.as_ref()?.qp != Some(qp) {
            return None;
        }
        window.bound = None;
        Some(())
    }

    /// How many windows are bound to a region.
    pub(crate) fn windows_of_region(&self, mr: usize) -> usize {
        self.mws
            .iter()
            .filter(|window| window.bound.as_ref().is_some_and(|bound| bound.mr == mr))
            .count()
    }

    /// How many windows are bound for the peer of a queue pair.
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
