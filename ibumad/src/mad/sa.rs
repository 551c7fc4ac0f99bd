//! Datagrams of subnet administration (IBA 15.2.1).

use super::bits::get;
use super::datagram::{AttrId, Mad, Method, MgmtClass};

/// A view of a datagram of subnet administration.
///
/// # Example
/// ```
/// use ibumad::{Gid, mad::{PathRecord, SaMad}};
/// let wanted = PathRecord::between(Gid([1; 16]), Gid([2; 16]));
/// let mask = PathRecord::BETWEEN_COMPONENTS;
/// let request = SaMad::get(PathRecord::ATTR, mask, wanted.as_bytes());
/// let view = SaMad::from_mad(&request).expect("of subnet administration");
/// assert_eq!(view.component_mask(), mask);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SaMad<'a>(&'a Mad);

impl<'a> SaMad<'a> {
    /// Creates a request for the record whose components in `mask` equal those of `record`.
    pub fn get(attr: AttrId, mask: u64, record: &[u8]) -> Mad {
        let mut mad = Mad::new(MgmtClass::SUBN_ADM, 2, Method::GET, attr);
        mad.put(384, 64, mask.into());
        let data = &mut mad.as_bytes_mut()[56..];
        let len = record.len().min(data.len());
        data[..len].copy_from_slice(&record[..len]);
        mad
    }

    /// Creates a view of a datagram. Returns `None` if it belongs to another class.
    pub fn from_mad(mad: &'a Mad) -> Option<Self> {
        (mad.class() == MgmtClass::SUBN_ADM).then_some(Self(mad))
    }

    /// Returns the SM_Key.
    pub fn sm_key(self) -> u64 {
        u64::try_from(get(self.0.as_bytes(), 288, 64)).unwrap_or(0)
    }

    /// Returns the distance in bytes between the records of a table.
    pub fn record_distance(self) -> usize {
        usize::from(self.0.bits(352, 16)) * 8
    }

    /// Returns the mask of the record's components that a query compares.
    pub fn component_mask(self) -> u64 {
        u64::try_from(get(self.0.as_bytes(), 384, 64)).unwrap_or(0)
    }

    /// Returns the record: 200 bytes.
    pub fn data(self) -> &'a [u8] {
        &self.0.as_bytes()[56..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_at_their_specified_offsets() {
        let mut mad = SaMad::get(AttrId::PATH_RECORD, 0x0102_0304_0506_0708, &[7; 300]);
        assert_eq!((mad.class_version(), mad.method()), (2, Method::GET));
        mad.as_bytes_mut()[36..44].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        mad.as_bytes_mut()[44..46].copy_from_slice(&[1, 3]);
        let view = SaMad::from_mad(&mad).expect("of subnet administration");
        assert_eq!(view.sm_key(), 0x0102_0304_0506_0708);
        assert_eq!(view.component_mask(), 0x0102_0304_0506_0708);
        assert_eq!(view.record_distance(), 0x103 * 8);
        assert_eq!(view.data(), [7; 200], "a record is truncated");
        mad.as_bytes_mut()[1] = MgmtClass::PERF.0;
        assert!(SaMad::from_mad(&mad).is_none());
    }
}
