//! Datagrams of subnet administration (IBA 15.2.1).

use super::bits::get;
use super::datagram::{AttrId, Mad, Method, MgmtClass};

/// A datagram of subnet administration, as a view.
#[derive(Clone, Copy, Debug)]
pub struct SaMad<'a>(&'a Mad);

impl<'a> SaMad<'a> {
    /// A request for the record that agrees with `record` in the components that `mask` names.
    pub fn get(attr: AttrId, mask: u64, record: &[u8]) -> Mad {
        let mut mad = Mad::new(MgmtClass::SUBN_ADM, 2, Method::GET, attr);
        mad.put(384, 64, mask.into());
        let room = &mut mad.as_bytes_mut()[56..];
        let len = record.len().min(room.len());
        room[..len].copy_from_slice(&record[..len]);
        mad
    }

    /// The view of a datagram; `None` when it is of another class.
    pub fn of(mad: &'a Mad) -> Option<Self> {
        (mad.class() == MgmtClass::SUBN_ADM).then_some(Self(mad))
    }

    /// The key that opens the subnet manager.
    pub fn sm_key(self) -> u64 {
        u64::try_from(get(self.0.as_bytes(), 288, 64)).unwrap_or(0)
    }

    /// Bytes from one record of a table to the next.
    pub fn record_distance(self) -> usize {
        usize::from(self.0.bits(352, 16)) * 8
    }

    /// Which components of the record count.
    pub fn component_mask(self) -> u64 {
        u64::try_from(get(self.0.as_bytes(), 384, 64)).unwrap_or(0)
    }

    /// The record: 200 bytes.
    pub fn data(self) -> &'a [u8] {
        &self.0.as_bytes()[56..]
    }
}
